"""Statistics of columns: batches add up to what numpy says of the whole."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edl_convert.distinct_count import KEPT, DistinctCount
from edl_convert.schema import ColumnType, SchemaStatistics

numbers = st.floats(-1e6, 1e6, width=32)


def hashes(first: int, last: int) -> list[bytes]:
    return [hashlib.blake2b(b"%d" % n, digest_size=8).digest() for n in range(first, last)]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(numbers, min_size=1, max_size=20), min_size=1, max_size=8))
def test_batches_add_up_to_the_statistics_of_the_whole(batches: list[list[float]]) -> None:
    statistics = SchemaStatistics()
    for batch in batches:
        statistics.add_rows(len(batch))
        statistics.add({"x": np.array(batch, np.float32)[:, np.newaxis]})
    (column,) = statistics.to_dict({}, None)["columns"]
    whole = np.concatenate([np.array(batch, np.float64) for batch in batches])
    scale = max(1.0, float(np.abs(whole).max()))
    assert column["mean"] == pytest.approx(whole.mean(), abs=1e-9 * scale)
    assert column["deviation"] == pytest.approx(whole.std(), abs=1e-6 * scale)
    assert (column["min"], column["max"]) == (whole.min(), whole.max())
    assert column["nulls"] == 0


def test_nulls_arrays_and_numbers_that_are_not_finite_are_counted() -> None:
    statistics = SchemaStatistics()
    statistics.add_rows(5)
    statistics.add({"x": np.array([[1.0], [np.nan], [np.inf], [3.0]], np.float32)})
    statistics.add({"ids": np.array([[2**62, 5, 6]])})
    statistics.add({"ids": np.array([[1], [2]])})
    schema = statistics.to_dict({"never": ColumnType.UNKNOWN, "ids": ColumnType.INTEGER}, "x")
    assert (schema["rows"], schema["label"]) == (5, "x")
    never, ids, x = schema["columns"]
    assert never == {"name": "never", "type": "unknown", "feature": None, "nulls": 5}
    assert (ids["nulls"], ids["values"], ids["max"]) == (2, {"min": 1, "max": 3}, 2**62)
    assert (x["nulls"], x["not_finite"], x["mean"], x["max"]) == (1, 2, 2.0, 3.0)


def test_a_vocabulary_is_exact_up_to_a_bound_and_then_estimated() -> None:
    few, many = DistinctCount(), DistinctCount()
    for _ in range(2):
        few.add(hashes(0, KEPT))
    assert (few.size, few.exact) == (KEPT, True)
    for first in range(0, 200_000, 10_000):
        many.add(hashes(first, first + 10_000))
    # The hashes are always the same, and so is the estimate.
    assert not many.exact
    assert many.size == pytest.approx(200_000, rel=0.03)
