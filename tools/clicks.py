"""Clicks like Criteo's as RecordIO files: 13 counts, 26 categories with a Zipf skew, a click.

    python tools/clicks.py DIR [--records N] [--files N] [--sharpness X]

writes DIR/train/*.recordio and DIR/test/*.recordio of tf.Example records with ``numbers``
(13 floats), ``ids`` (26 int64) and ``click`` (int64). Whether there is a click depends on hidden
weights of ids and pairs of ids, so that a model with embeddings can learn it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import recordio.example
from digits import write

NUMBERS, FIELDS = 13, 26
KINDS = tuple(int(10 ** (1.5 + 4.5 * i / (FIELDS - 1))) for i in range(FIELDS))
"""How many ids each field has: from some thirty to a million."""

Array = np.ndarray[Any, Any]


def ids(records: int, random: np.random.Generator, skew: float = 1.1) -> Array:
    """Ids of all fields, shape (records, 26); the n-th most frequent comes as often as n^-skew."""
    columns = []
    for kinds in KINDS:
        weights = np.arange(1, kinds + 1, dtype=np.float64) ** -skew
        drawn = np.searchsorted(np.cumsum(weights) / weights.sum(), random.random(records))
        # Ids are hashes: neither small nor in the order of their frequency.
        columns.append(np.minimum(drawn, kinds - 1) * 2654435761 % (1 << 40))
    return np.stack(columns, 1).astype(np.int64)


def hidden_weights(given: Array, salt: int) -> Array:
    """Return a weight for each id, the same in every run: roughly normal."""
    mixed = (given * 1099511628211 + salt * 40503) % 1_000_003
    return (mixed / 1_000_003 + mixed * 7919 % 1_000_003 / 1_000_003 - 1.0) * 2.4


def clicks(
    numbers: Array, given: Array, random: np.random.Generator, sharpness: float = 1.0
) -> Array:
    """0 or 1 for each record; the sharper, the less of it is chance."""
    single = hidden_weights(given[:, :8], 1).sum(1) * 0.5
    pairs = (hidden_weights(given[:, :4], 2) * hidden_weights(given[:, 4:8], 3)).sum(1) * 0.3
    logit = single + pairs + 0.3 * np.log1p(numbers[:, 0]) - 1.5
    return (random.random(len(logit)) < 1 / (1 + np.exp(-sharpness * logit))).astype(np.int64)


def records(count: int, seed: int = 0, sharpness: float = 1.0) -> list[bytes]:
    random = np.random.default_rng(seed)
    numbers = np.floor(random.exponential(20.0, (count, NUMBERS))).astype(np.float32)
    given = ids(count, random)
    labels = clicks(numbers, given, random, sharpness)
    return [
        recordio.example.encode({"numbers": n, "ids": i, "click": np.array([c])})
        for n, i, c in zip(numbers, given, labels, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--records", type=int, default=50_000, help="for training")
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument(
        "--sharpness", type=float, default=1.0, help="the more, the less chance is in the clicks"
    )
    chosen = parser.parse_args()
    train = records(chosen.records, 0, chosen.sharpness)
    test = records(max(1, chosen.records // 5), 1, chosen.sharpness)
    write(chosen.directory / "train", train, chosen.files, "clicks")
    write(chosen.directory / "test", test, 1, "clicks")


if __name__ == "__main__":
    main()
