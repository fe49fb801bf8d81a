"""Keras's own ``fit`` of a model file: what ``tools/ordinary_models.py`` compares jobs with.

    python tools/ordinary_fit.py FILE TRAIN TEST EPOCHS BATCH_SIZE SEED...

Prints the values of ``evaluate`` as one JSON object for each seed. Of edl it uses only the reader
of RecordIO.
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

import recordio


def read(path: str) -> list[bytes]:
    """Return all records of a CSV file, or of a folder of RecordIO files."""
    if path.endswith(".csv"):
        return Path(path).read_bytes().splitlines()[1:]
    files = sorted(Path(path).glob("*.recordio"))
    return [r for f in files for r in recordio.open_source(str(f)).read(0, 1 << 30)]


def build(file: dict[str, Any]) -> Any:
    """Return the compiled model of a model file."""
    model = file["model"] if "model" in file else file["build_model"]()
    if not model.compiled:
        optimizer = file["optimizer"]
        model.compile(
            optimizer() if callable(optimizer) else optimizer,
            **{
                name: file[name]
                for name in ("loss", "metrics", "weighted_metrics", "loss_weights")
                if name in file
            },
        )
    return model


def main() -> None:
    path, train, test, epochs, batch_size, *seeds = sys.argv[1:]
    records = read(train), read(test)
    for seed in seeds:
        keras.utils.set_random_seed(int(seed))
        file = runpy.run_path(path)
        trained, tested = (tf.data.Dataset.from_tensor_slices(r) for r in records)
        trained = trained.cache().shuffle(len(records[0]))
        trained = file["dataset_fn"](trained, "training").batch(int(batch_size))
        tested = file["dataset_fn"](tested, "evaluation").batch(32)
        model = build(file)
        callbacks = file.get("callbacks", list)()
        model.fit(
            trained,
            validation_data=tested,
            epochs=int(epochs),
            callbacks=callbacks,
            verbose=0,
        )
        print(json.dumps(model.evaluate(tested, verbose=0, return_dict=True)), flush=True)


if __name__ == "__main__":
    main()
