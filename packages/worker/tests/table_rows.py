"""Rows of a table as a model of the zoo gets them: their schema, and their records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from example_data import example

from edl_runtime.model.model_params import format_params
from edl_worker.core.job import ModelReference
from edl_worker.engines.tensorflow.model import ModelFile, load_model_file
from elasticdl.python.common.constants import Mode

ZOO = Path(__file__).parents[3] / "model_zoo"
Row = dict[str, Any]


def column(name: str, values: Sequence[Any]) -> Row:
    """Return a column of ``schema.json``; the values are numbers, texts, arrays or None."""
    there = [value for value in values if value is not None]
    found: Row = {"name": name, "nulls": len(values) - len(there)}
    if not there:
        return found | {"type": "unknown", "feature": None}
    widths = [np.size(value) for value in there]
    found["values"] = {"min": min(widths), "max": max(widths)}
    if isinstance(there[0], bytes):
        size = {"size": len(set(there)), "exact": True}
        return found | {"type": "string", "feature": "bytes", "vocabulary": size}
    numbers = np.concatenate([np.atleast_1d(value) for value in there])
    integers = numbers.dtype.kind == "i"
    return found | {
        "type": "integer" if integers else "float",
        "feature": "int64" if integers else "float",
        "mean": float(numbers.mean()),
        "deviation": float(numbers.std()),
        "min": numbers.min().item(),
        "max": numbers.max().item(),
    }


def schema_of(rows: Sequence[Row], label: str | None = "label") -> Row:
    columns = [column(name, [row[name] for row in rows]) for name in rows[0]]
    return {"version": 1, "rows": len(rows), "label": label, "columns": columns}


def records_of(rows: Sequence[Row], *without: str) -> list[bytes]:
    return [
        example(**{k: v for k, v in row.items() if v is not None and k not in without})
        for row in rows
    ]


def load(model_def: str, mode: Mode = Mode.TRAINING, **params: Any) -> ModelFile:
    reference = ModelReference(str(ZOO), model_def, params=format_params(params))
    return load_model_file(reference, purpose=mode, seed=1)
