"""Plain ``model.fit`` on the MNIST model of the zoo; prints images per second as JSON.

The input is what a Keras user would write: TFRecord files of the same records through
``tf.data`` with the model file's own dataset function, prefetched.
"""

from __future__ import annotations

import glob
import importlib.util
import json
import sys
import tempfile
import time
from pathlib import Path

import tensorflow as tf

import recordio
from elasticdl import Mode

ROOT = Path(__file__).resolve().parent.parent.parent


def main() -> None:
    data, batch, epochs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    spec = importlib.util.spec_from_file_location(
        "mnist_model", ROOT / "model_zoo/mnist/mnist_functional_api.py"
    )
    assert spec is not None
    assert spec.loader is not None
    zoo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(zoo)

    with tempfile.TemporaryDirectory() as place:
        files, records = [], 0
        for path in sorted(glob.glob(f"{data}/train/*.recordio")):
            files.append(f"{place}/{Path(path).stem}.tfrecord")
            with tf.io.TFRecordWriter(files[-1]) as writer:
                for record in recordio.open_source(path).read(0, sys.maxsize):
                    writer.write(record)
                    records += 1
        dataset = zoo.dataset_fn(tf.data.TFRecordDataset(files), Mode.TRAINING)
        dataset = dataset.batch(batch).prefetch(tf.data.AUTOTUNE)
        zoo.model.compile(
            optimizer=zoo.optimizer(),
            # The file's loss, as Keras has it: fit gives a plain function labels of float32.
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        ends: list[float] = []
        clock = tf.keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: ends.append(time.perf_counter())
        )
        zoo.model.fit(dataset, epochs=epochs, verbose=0, callbacks=[clock])
    print(json.dumps({"images_per_s": records * (epochs - 1) / (ends[-1] - ends[0])}))


if __name__ == "__main__":
    main()
