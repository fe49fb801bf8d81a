"""Plain ``model.fit`` on a model of a benchmark; prints records per second as JSON.

``python -m bench.peers.keras_fit MODEL DATA BATCH EPOCHS``. The input is what a Keras user would
write: TFRecord files of the same records through ``tf.data`` with the model file's own dataset
function, prefetched.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time

import tensorflow as tf

from bench.peers import subjects


def main(name: str, data: str, batch: int, epochs: int) -> None:
    subject = subjects.find_subject(name)
    with tempfile.TemporaryDirectory() as place:
        records = subjects.write_tfrecords(data, place)
        dataset = subject.minibatches(place, batch)
        model = subject.model()
        model.compile(optimizer=tf.keras.optimizers.SGD(subject.rate), loss=subject.loss())
        ends: list[float] = []
        steps = []
        clock = tf.keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: ends.append(time.perf_counter()),
            on_train_batch_end=lambda step, logs: steps.append(step),
        )
        model.fit(dataset, epochs=epochs, verbose=0, callbacks=[clock])
    if len(steps) != epochs * -(-records // batch):
        raise RuntimeError(f"fit made {len(steps)} steps of {records} records")
    print(json.dumps({"records_per_s": records * (epochs - 1) / (ends[-1] - ends[0])}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:5]))
