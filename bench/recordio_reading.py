"""RecordIO feeding ``tf.data`` against TensorFlow's own TFRecord reader, over the same records.

Both sides end in the same pipeline, minibatches of strings, and read files that are in the
system's cache: what is measured is the reader, not the disk.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import recordio
from bench.measure import compare

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

RUNS, BATCH, RANGE = 7, 256, 100
SIZES = {"100 B": (100, 500_000), "3 KB": (3_000, 40_000)}
PEERS = {"none": "", "snappy": "", "gzip": "GZIP"}


def measures() -> list[dict[str, Any]]:
    """Records per second for each compressor and size of record; ranges per second; counting."""
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        for label, (size, number) in SIZES.items():
            files = _write(Path(place), size, number)
            for compressor, compression in PEERS.items():
                peer = f"TFRecordDataset, {compression.lower() or 'uncompressed'}"
                measure = compare(
                    f"RecordIO {compressor} → tf.data, {label}",
                    "records/s",
                    measure_rate(_ours(files[compressor]), number),
                    peer,
                    measure_rate(_theirs(files[f"tf{compression}"], compression), number),
                    runs=RUNS,
                    # Uncompressed TFRecord is no peer of a compressed file: shown, not asked for.
                    target=None if compressor == "snappy" else 1.0,
                )
                found.append(measure.to_json())
        # The files of the last, larger records.
        found += _positions(files["snappy"], files["tf"], number)
    return found


def _write(place: Path, size: int, number: int) -> dict[str, str]:
    """Write the same records in every form; half of each is noise, so that gzip has work."""
    import tensorflow as tf

    chance = random.Random(1)
    records = [
        chance.randbytes(size // 2) + bytes(size // 2 + chance.randrange(-size // 5, size // 5))
        for _ in range(number)
    ]
    files: dict[str, str] = {}
    for compressor in ("none", "snappy", "gzip"):
        files[compressor] = str(place / f"{size}-{compressor}.recordio")
        with recordio.Writer(files[compressor], compressor=compressor) as writer:
            for record in records:
                writer.write(record)
    for compression in ("", "GZIP"):
        files[f"tf{compression}"] = str(place / f"{size}-{compression}.tfrecord")
        with tf.io.TFRecordWriter(files[f"tf{compression}"], compression) as theirs:
            for record in records:
                theirs.write(record)
    return files


def _ours(path: str) -> Any:
    from recordio import tfdata

    return tfdata.dataset([path]).batch(BATCH)


def _theirs(path: str, compression: str) -> Any:
    import tensorflow as tf

    return tf.data.TFRecordDataset(path, compression).batch(BATCH)


def measure_rate(dataset: Any, number: int) -> Callable[[], float]:
    """Measures records per second of a whole iteration, its start included."""

    def run() -> float:
        begun = time.perf_counter()
        seen = sum(int(batch.shape[0]) for batch in dataset)
        seconds = time.perf_counter() - begun
        if seen != number:
            raise RuntimeError(f"{seen} records instead of {number}")
        return number / seconds

    run()  # the first iteration warms caches and threads up
    return run


def _positions(ours: str, theirs: str, number: int) -> list[dict[str, Any]]:
    """Measure counting, and a task in the middle of a file, next to TensorFlow's only ways."""
    import tensorflow as tf

    start = number * 3 // 4
    hint = recordio.open_source(ours).index().block(start)

    def range_of_ours() -> float:
        begun = time.perf_counter()
        source = recordio.open_source(ours)
        seen = len(list(source.read(start, start + RANGE, hint=hint)))
        return seen / (time.perf_counter() - begun)

    def range_of_theirs() -> float:
        begun = time.perf_counter()
        dataset = tf.data.TFRecordDataset(theirs).skip(start).take(RANGE).batch(RANGE)
        seen = sum(int(batch.shape[0]) for batch in dataset)
        return seen / (time.perf_counter() - begun)

    def count_of_ours() -> float:
        begun = time.perf_counter()
        seen = recordio.open_source(ours).count()
        return seen / (time.perf_counter() - begun)

    def count_of_theirs() -> float:
        begun = time.perf_counter()
        batches = tf.data.TFRecordDataset(theirs).batch(BATCH)
        seen = sum(int(batch.shape[0]) for batch in batches)
        return seen / (time.perf_counter() - begun)

    pairs = [
        (f"{RANGE} records from the middle of a file", range_of_ours, range_of_theirs, "skip"),
        ("counting a file's records", count_of_ours, count_of_theirs, "reading them all"),
    ]
    return [
        compare(
            name, "records/s", mine, f"TFRecordDataset, {how}", other, runs=RUNS, target=1.0
        ).to_json()
        for name, mine, other, how in pairs
    ]


if __name__ == "__main__":
    from bench.__main__ import main

    sys.argv[1:1] = ["recordio_reading"]
    sys.exit(main())
