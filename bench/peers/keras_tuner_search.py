"""A random search of KerasTuner in one process.

``python -m bench.peers.keras_tuner_search DATA TRIALS BATCH EPOCHS``; PYTHONPATH has KerasTuner.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import recordio
import recordio.example

sys.path.insert(0, str(Path(__file__).parent.parent / "models"))
import keras_tuner
from tuned_digits import build_model


def load(place: Path) -> tuple[Any, Any]:
    """Return images and labels of files of digits."""
    files = map(str, sorted(place.glob("*.recordio")))
    found = [
        recordio.example.decode(r) for f in files for r in recordio.open_source(f).read(0, 1 << 40)
    ]
    images = np.stack([each["image"] for each in found]).reshape(-1, 28, 28) / 255.0
    return images, np.concatenate([each["label"] for each in found])


def main(data: str, trials: int, batch: int, epochs: int) -> None:
    images, labels = load(Path(data) / "train")
    validation = load(Path(data) / "test")
    with tempfile.TemporaryDirectory() as place:
        tuner = keras_tuner.RandomSearch(
            build_model, objective="val_accuracy", max_trials=trials, seed=1, directory=place
        )
        tuner.search(
            *(images, labels, batch),
            epochs=epochs,
            validation_data=validation,
            verbose=0,
        )
        states = [trial.status for trial in tuner.oracle.trials.values()]
    if states != ["COMPLETED"] * trials:
        raise RuntimeError(f"KerasTuner goes on after trials that failed: {states}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]))
