"""Distinct ids of tables, whatever the ids are, and where each id of a lookup is among them."""

from __future__ import annotations

import numpy as np
import pytest

from edl_worker.core.row_engine import IdArray
from edl_worker.engines.tensorflow.embedding.distinct_ids import find_distinct

LIMITS = np.iinfo(np.int64)


def _draw(seed: int, low: int, high: int, size: int) -> IdArray:
    return np.random.default_rng(seed).integers(low, high, size, np.int64, endpoint=True)


@pytest.mark.parametrize(
    "tables",
    [
        [_draw(1, 0, 50, 400)],
        [_draw(2, 0, 50, 400), _draw(3, 0, 50, 30), _draw(4, 1000, 1002, 99)],
        [_draw(5, -20, 20, 64), _draw(6, -5, -5, 3)],
        [_draw(7, 0, 9, 0), _draw(8, 0, 9, 20), _draw(9, 0, 9, 0)],
        [_draw(10, LIMITS.min, LIMITS.max, 500), _draw(11, 0, 3, 9)],
        [np.array([LIMITS.max, LIMITS.min, LIMITS.max], np.int64), _draw(12, 0, 1, 5)],
        [np.array([LIMITS.min, LIMITS.min + 3], np.int64), np.array([LIMITS.max], np.int64)],
        [np.empty(0, np.int64)],
        [_draw(13, 0, 1 << 40, 70_000)],
    ],
    ids=["one", "several", "negative", "unused", "wide", "ends", "far", "none", "many"],
)
def test_ids_are_distinct_in_their_tables_and_found_again(tables: list[IdArray]) -> None:
    ids, counts, places = find_distinct(np.concatenate(tables), [table.size for table in tables])
    for found, table in zip(np.split(ids, np.cumsum(counts)[:-1]), tables, strict=True):
        np.testing.assert_array_equal(found, np.unique(table))
    at, order, ascending = np.split(places, 3)
    np.testing.assert_array_equal(ids[at], np.concatenate(tables))
    # Equal ids of different tables are different rows.
    rows = np.repeat(np.arange(len(tables)), [table.size for table in tables])
    np.testing.assert_array_equal(np.repeat(np.arange(len(tables)), counts)[at], rows)
    np.testing.assert_array_equal(order, np.argsort(at, kind="stable"))
    np.testing.assert_array_equal(ascending, at[order])
