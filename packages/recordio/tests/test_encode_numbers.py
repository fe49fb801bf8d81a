"""Single Python numbers are encoded by a path of their own, with the bytes of numpy's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordio import example


@given(st.integers(-(2**63), 2**63 - 1) | st.floats(width=64))
def test_one_number_is_encoded_as_an_array_of_one(value: float) -> None:
    with np.errstate(over="ignore"):
        array = np.array([value], np.int64 if isinstance(value, int) else np.float64)
        assert example.encode({"x": value}) == example.encode({"x": array})


@pytest.mark.parametrize("value", [1e39, -1e39, math.inf, math.nan, -0.0])
def test_floats_at_the_limits(value: float) -> None:
    with np.errstate(over="ignore"):
        (found,) = example.decode(example.encode({"x": value}))["x"]
        expected = np.float64(value).astype(np.float32)
    np.testing.assert_equal(found, expected)
