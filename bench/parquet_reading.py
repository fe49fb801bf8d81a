"""Parquet as jobs read it, against pyarrow alone, up to minibatches of tensors by column.

A job reads rows as tf.Examples, so that one input function reads RecordIO and Parquet. What that
costs shows against pyarrow, which hands whole columns on. RecordIO of the same rows is beside it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import recordio
from bench.measure import compare
from bench.recordio_reading import measure_rate

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

RUNS, BATCH, ROWS, GROUP = 5, 256, 200_000, 50_000
TABLES = {"8 floats": (8, 0), "13 floats, 26 texts": (13, 26)}


def measures() -> list[dict[str, Any]]:
    """Rows per second of each table."""
    found = []
    with tempfile.TemporaryDirectory() as place:
        for label, (floats, texts) in TABLES.items():
            parquet, records = _write(Path(place), floats, texts)
            spec = _spec(floats, texts)
            as_job = measure_rate(_examples(parquet, spec), ROWS)
            peers = {
                "pyarrow alone": (measure_rate(_Columns(parquet), ROWS), 0.9),
                "RecordIO of the same rows": (measure_rate(_examples(records, spec), ROWS), None),
            }
            for peer, (rate, target) in peers.items():
                name = f"Parquet → tensors, {label}"
                measure = compare(name, "rows/s", as_job, peer, rate, runs=RUNS, target=target)
                found.append(measure.to_json())
    return found


def _write(place: Path, floats: int, texts: int) -> tuple[str, str]:
    """Write the same rows as Parquet and as RecordIO; return both paths."""
    import pyarrow
    from pyarrow import parquet

    draw = np.random.default_rng(1)
    columns: dict[str, Any] = {f"f{at}": draw.random(ROWS, np.float32) for at in range(floats)}
    words = np.array([f"{number:08x}" for number in draw.integers(0, 2**32, 10_000)])
    columns |= {f"t{at}": words[draw.zipf(1.2, ROWS) % len(words)] for at in range(texts)}
    table, rows = str(place / f"{floats}.parquet"), str(place / f"{floats}.recordio")
    parquet.write_table(pyarrow.table(columns), table, row_group_size=GROUP)
    with recordio.Writer(rows) as writer:
        for record in recordio.open_source(table).read(0, ROWS):
            writer.write(record)
    return table, rows


def _spec(floats: int, texts: int) -> dict[str, Any]:
    import tensorflow as tf

    spec = {f"f{at}": tf.io.FixedLenFeature([], tf.float32) for at in range(floats)}
    return spec | {f"t{at}": tf.io.FixedLenFeature([], tf.string) for at in range(texts)}


def _examples(path: str, spec: dict[str, Any]) -> Any:
    """Return minibatches as an input function with ``parse_example`` makes them."""
    import tensorflow as tf

    from recordio import tfdata

    def parse(records: Any) -> Any:
        return _first(tf.io.parse_example(records, spec))

    return tfdata.dataset([path]).batch(BATCH).map(parse).prefetch(2)


def _first(features: dict[str, Any]) -> Any:
    return next(iter(features.values()))


class _Columns:
    """Minibatches of pyarrow as tensors."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __iter__(self) -> Any:
        import tensorflow as tf
        from pyarrow import parquet

        for batch in parquet.ParquetFile(self._path).iter_batches(batch_size=BATCH):
            columns = [column.to_numpy(zero_copy_only=False) for column in batch.columns]
            tensors = [tf.convert_to_tensor(column) for column in columns]
            yield tensors[0]


if __name__ == "__main__":
    from bench.__main__ import main

    sys.argv[1:1] = ["parquet_reading"]
    sys.exit(main())
