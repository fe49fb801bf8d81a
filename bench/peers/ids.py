"""Ids of embedding rows with a realistic skew; light, for processes without TensorFlow."""

from __future__ import annotations

from typing import Any

import numpy as np


def skew_ids(batches: int, batch: int, fields: int, ids: int) -> np.ndarray[Any, Any]:
    """Return ids of shape (batches, batch * fields): each field's own, the n-th as often as n^-1.1.

    Args:
        batches, batch, fields: how many.
        ids: different ones of all fields together.
    """
    random = np.random.default_rng(1)
    per_field = ids // fields
    weights = np.arange(1, per_field + 1, dtype=np.float64) ** -1.1
    edges = np.cumsum(weights) / weights.sum()
    drawn = np.searchsorted(edges, random.random((batches, batch, fields)))
    found = np.minimum(drawn, per_field - 1) + np.arange(fields) * per_field
    return found.reshape(batches, -1).astype(np.int64)
