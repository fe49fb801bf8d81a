"""Quantization: which numbers are rounded, to which, and which are left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from edl_master.core.parameters.layout import Array, Variable
from edl_master.core.parameters.quantization import (
    Precision,
    Span,
    dequantize,
    fits,
    quantize,
    spans_of,
    warm_up,
    wire_nbytes,
)

HALVES = (Precision.FLOAT16, Precision.BFLOAT16)
EVERY = np.arange(1 << 16, dtype=np.uint16)


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    """Else the first example would be slow."""
    for precision in Precision:
        warm_up(precision)


some_bits = arrays.arrays(np.uint32, st.integers(0, 70), elements=st.integers(0, 2**32 - 1))
some_floats = arrays.arrays(np.float32, st.integers(0, 70), elements=st.floats(width=32))
numbers = st.one_of(some_bits, some_floats.map(lambda found: found.view(np.uint32)))


def quantize_all(bits: Array, precision: Precision) -> Array:
    out = np.empty(bits.size, np.uint16)
    quantize(bits, out, precision)
    return out


def dequantize_all(bits: Array, precision: Precision) -> Array:
    out = np.empty(bits.size, np.uint32)
    dequantize(bits, out, precision)
    return out


def of_float16(bits: Array) -> Array:
    with np.errstate(over="ignore"):
        return bits.view(np.float32).astype(np.float16).view(np.uint16)


def of_bfloat16(bits: Array) -> Array:
    """Round by the definition: to the nearer neighbour, and between both to the even one.

    A bfloat16 is the upper half of a float32. Distances are exact in float64; beyond the largest
    number the next one counts as if exponents went on.
    """
    below = (bits >> 16).astype(np.uint16)
    size = (bits & 0x7FFFFFFF).view(np.float32).astype(np.float64)
    low = ((bits & 0x7FFF0000).view(np.float32)).astype(np.float64)
    next_bits = (bits & 0x7FFF0000) + np.uint32(0x10000)
    with np.errstate(invalid="ignore"):
        high = next_bits.view(np.float32).astype(np.float64)
    high = np.where(np.isinf(high) & np.isfinite(low), 2.0**128, high)
    with np.errstate(invalid="ignore"):
        up = (size - low > high - size) | ((size - low == high - size) & (below % 2 == 1))
    return np.where(up & np.isfinite(size), below + 1, below).astype(np.uint16)


REFERENCES: dict[Precision, Callable[[Array], Array]] = {
    Precision.FLOAT16: of_float16,
    Precision.BFLOAT16: of_bfloat16,
}

_OF_FLOAT16 = [65504, 65519.996, 65520, -65520, 6.1e-5, 5.9604645e-08, 2.9802322e-08, 3e-8]
_OF_BFLOAT16 = [3.3895314e38, 3.3961775e38, 3.4028235e38, 1.00390625, 1.01171875]
_OF_BOTH = [0.0, -0.0, 1e-45, np.inf, -np.inf]
_BORDERS = np.array([*_OF_FLOAT16, *_OF_BFLOAT16, *_OF_BOTH], np.float32).view(np.uint32)


@pytest.mark.parametrize("precision", HALVES)
@given(bits=numbers)
@example(bits=_BORDERS)
def test_numbers_are_rounded_to_the_nearest(precision: Precision, bits: Array) -> None:
    found = quantize_all(bits, precision)
    is_nan = np.isnan(bits.view(np.float32))
    np.testing.assert_array_equal(found[~is_nan], REFERENCES[precision](bits)[~is_nan])
    back = dequantize_all(found, precision).view(np.float32)
    assert np.isnan(back[is_nan]).all(), "a NaN stays one"
    assert not np.isnan(back[~is_nan]).any()


@pytest.mark.parametrize("precision", HALVES)
def test_as_others_round(precision: Precision) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    bits = np.random.default_rng(1).integers(0, 2**32, 1_000_000, dtype=np.uint32)
    values = bits.view(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        theirs = values.astype(getattr(ml_dtypes, precision, np.float16)).view(np.uint16)
    is_nan = np.isnan(values)
    np.testing.assert_array_equal(quantize_all(bits, precision)[~is_nan], theirs[~is_nan])


@pytest.mark.parametrize("precision", HALVES)
def test_every_number_of_16_bits_is_dequantized_exactly_and_comes_back(
    precision: Precision,
) -> None:
    wide = dequantize_all(EVERY, precision)
    if precision is Precision.FLOAT16:
        expected = EVERY.view(np.float16).astype(np.float32).view(np.uint32)
    else:
        expected = EVERY.astype(np.uint32) << 16
    is_nan = np.isnan(wide.view(np.float32))
    np.testing.assert_array_equal(wide[~is_nan], expected[~is_nan])
    np.testing.assert_array_equal(quantize_all(wide, precision)[~is_nan], EVERY[~is_nan])
    assert np.isnan(
        dequantize_all(quantize_all(wide, precision), precision).view(np.float32)[is_nan]
    ).all()


@pytest.mark.parametrize("precision", HALVES)
@given(bits=numbers)
@example(bits=_BORDERS)
def test_what_fits_is_what_stays_finite(precision: Precision, bits: Array) -> None:
    back = dequantize_all(quantize_all(bits, precision), precision).view(np.float32)
    assert fits(bits, precision) == bool(np.isfinite(back).all())


def test_only_trainable_float32_has_16_bits() -> None:
    variables = [
        Variable("a", (3,), "float32", True),
        Variable("b", (2, 2), "float32", True),
        Variable("c", (1,), "float64", True),
        Variable("mean", (5,), "float32", False),
        Variable("d", (1,), "float32", True),
    ]
    spans = spans_of(variables)
    assert spans == (Span(28, True), Span(28, False), Span(4, True))
    assert wire_nbytes(spans, Precision.FLOAT32) == 60
    assert wire_nbytes(spans, Precision.BFLOAT16) == 14 + 28 + 2


def test_loops_are_compiled_before_they_are_needed() -> None:
    from edl_master.core.parameters import quantization_kernels as loops

    def count(loop: Any) -> int:
        return len(loop.signatures)

    names = [f"{way}_{half}" for half in HALVES for way in ("quantize", "dequantize")]
    before = [count(getattr(loops, name)) for name in names]
    for half in HALVES:
        dequantize_all(quantize_all(np.zeros(3, np.uint32), half), half)
        dequantize_all(np.frombuffer(bytes(6), np.uint16), half)
    assert [count(getattr(loops, name)) for name in names] == before
    assert all(before)
