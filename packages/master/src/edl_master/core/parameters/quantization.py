"""Quantization: numbers are float32 in memory, and have 16 bits on the wire."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from edl_master.core.parameters.arithmetic import kernel, read_only, slices
from edl_master.core.parameters.layout import Array, Variable

_MODULE = "quantization_kernels"


class Precision(StrEnum):
    """The type of number as which trainable float32 numbers are sent."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"


# As bits of a float32, which order as the numbers do: from here on rounding gives infinity.
_TOO_LARGE = {Precision.FLOAT16: 0x477FF000, Precision.BFLOAT16: 0x7F7F8000}


@dataclass(frozen=True, slots=True)
class Span:
    """Neighbours in a payload that are sent in the same precision.

    Attributes:
        nbytes: their bytes in memory.
        quantized: trainable float32 numbers, which are sent in 16 bits if both sides agreed on
            that. 16 bits are too few for other numbers: for the small changes of a moving
            average, and for float64.
    """

    nbytes: int
    quantized: bool

    def wire_nbytes(self, precision: Precision) -> int:
        """Their bytes on the wire."""
        is_half = self.quantized and precision is not Precision.FLOAT32
        return self.nbytes // 2 if is_half else self.nbytes


def spans_of(variables: Iterable[Variable]) -> tuple[Span, ...]:
    """Return the spans of a payload of these variables."""
    found: list[Span] = []
    for variable in variables:
        quantized = variable.trainable and variable.dtype == "float32"
        if found and found[-1].quantized == quantized:
            found[-1] = Span(found[-1].nbytes + variable.nbytes, quantized)
        else:
            found.append(Span(variable.nbytes, quantized))
    return tuple(found)


def wire_nbytes(spans: Iterable[Span], precision: Precision) -> int:
    """Return the bytes of a payload on the wire."""
    return sum(span.wire_nbytes(precision) for span in spans)


def quantize(values: Array, out: Array, precision: Precision) -> None:
    """Round float32 numbers to 16 bits.

    Args:
        values: as uint32.
        out: as many uint16.
        precision: not FLOAT32.
    """
    kernel(f"quantize_{precision}", _MODULE)(read_only(values), out)


def dequantize(values: Array, out: Array, precision: Precision) -> None:
    """Convert numbers of 16 bits to float32, exactly.

    Args:
        values: as uint16.
        out: as many uint32.
        precision: not FLOAT32.
    """
    kernel(f"dequantize_{precision}", _MODULE)(read_only(values), out)


def fits(values: Array, precision: Precision) -> bool:
    """Return whether all float32 numbers, as uint32, are finite and stay so with 16 bits."""
    largest = kernel("largest_magnitude")
    mask, bound = np.uint32(0x7FFFFFFF), _TOO_LARGE[precision]
    values = read_only(values)
    return all(largest(values[cut], mask) < bound for cut in slices(0, values.size))


def warm_up(precision: Precision) -> None:
    """Compile what these functions need."""
    if precision is Precision.FLOAT32:
        return
    wide, half = np.zeros(1, np.uint32), np.zeros(1, np.uint16)
    quantize(wide, half, precision)
    dequantize(half, wide, precision)
    fits(wide, precision)
