"""Real handwritten digits as RecordIO files: scikit-learn's, upsampled to 28×28.

    python tools/digits.py DIR [--records N] [--files N]

writes DIR/train/*.recordio and DIR/test/*.recordio of tf.Example records with ``image``
(float, 28×28, 0 to 255) and ``label`` (int64).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import recordio
import recordio.example

SIDE = 28


def upsample(images: np.ndarray[Any, Any], side: int = SIDE) -> np.ndarray[Any, Any]:
    """Bilinear interpolation of square images ``[n, s, s]`` to ``[n, side, side]``."""
    at = np.linspace(0, images.shape[1] - 1, side)
    low = np.floor(at).astype(int)
    high = np.minimum(low + 1, images.shape[1] - 1)
    part = (at - low).astype(np.float32)
    rows = images[:, low] * (1 - part)[None, :, None] + images[:, high] * part[None, :, None]
    return rows[:, :, low] * (1 - part) + rows[:, :, high] * part


def load(seed: int = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """All 1,797 digits in a seeded order: images [n, 28, 28] float32 of 0..255, labels [n]."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.target))
    images = upsample(digits.images[order].astype(np.float32) * (255 / 16))
    return images.astype(np.float32), digits.target[order].astype(np.int64)


def colour(images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Images ``[n, 32, 32, 3]`` float32, each in a colour of its own."""
    colours = np.random.default_rng(1).uniform(0.4, 1.0, (len(images), 1, 1, 3))
    return (upsample(images, 32)[..., None] * colours).astype(np.float32)


def records(images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> list[bytes]:
    return [
        recordio.example.encode({"image": image.reshape(-1), "label": np.array([label])})
        for image, label in zip(images, labels, strict=True)
    ]


def write(directory: Path, content: list[bytes], files: int, stem: str) -> list[Path]:
    """The records in order, over several files."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, part in enumerate(np.array_split(np.arange(len(content)), files)):
        path = directory / f"{stem}-{number:02d}.recordio"
        with recordio.Writer(str(path)) as writer:
            for index in part:
                writer.write(content[index])
        paths.append(path)
    return paths


def make(directory: Path, *, total: int | None = None, files: int = 4) -> tuple[int, int]:
    """Write train (80 %) and test (20 %) files; ``total`` repeats the training digits.

    Returns:
        Numbers of training and test records.
    """
    images, labels = load()
    cut = len(labels) * 4 // 5
    train = records(images[:cut], labels[:cut])
    if total is not None:
        train = [train[i % cut] for i in range(total)]
    test = records(images[cut:], labels[cut:])
    write(directory / "train", train, files, "digits")
    write(directory / "test", test, max(1, files // 2), "digits")
    return len(train), len(test)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--records", type=int)
    parser.add_argument("--files", type=int, default=4)
    chosen = parser.parse_args()
    trained, held_out = make(chosen.directory, total=chosen.records, files=chosen.files)
    print(f"{trained} training and {held_out} test records in {chosen.directory}")
