"""Keras' ``fit`` on the digits: validation loss and rate.

python -m bench.peers.fit_digits DATA BATCH EPOCHS SEED
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np

import recordio
import recordio.example

BATCH, EPOCHS, SEED = map(int, sys.argv[2:5])


def load(place: Path) -> tuple[Any, Any]:
    """Return images and labels of files of digits."""
    files = map(str, sorted(place.glob("*.recordio")))
    found = [
        recordio.example.decode(r) for f in files for r in recordio.open_source(f).read(0, 1 << 40)
    ]
    images = np.stack([each["image"] for each in found]).reshape(-1, 28, 28) / 255.0
    return images, np.concatenate([each["label"] for each in found])


keras.utils.set_random_seed(SEED)
from bench.models import digits_dense  # noqa: E402  (makes its model, from this seed)

model = digits_dense.model
from_logits = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(digits_dense.optimizer(), from_logits)
images, labels = load(Path(sys.argv[1]) / "train")
ends: list[float] = []
model.fit(
    *(images, labels, BATCH, EPOCHS),
    verbose=0,
    callbacks=[
        keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: ends.append(time.monotonic()))
    ],
)
rate = len(labels) * (EPOCHS - 1) / (ends[-1] - ends[0])
loss = model.evaluate(*load(Path(sys.argv[1]) / "test"), verbose=0)
print(json.dumps({"loss": loss, "rate": rate}))
