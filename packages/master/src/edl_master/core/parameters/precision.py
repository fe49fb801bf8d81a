"""Numbers of 16 bits on the wire, and of 32 where they are kept and computed with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from edl_master.core.parameters.arithmetic import kernel, read_only, slices
from edl_master.core.parameters.layout import Array, Variable

_MODULE = "precision_kernels"


class Precision(StrEnum):
    """What trainable float32 numbers travel as."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"


# As bits of a float32, which order as the numbers do: from here on rounding gives infinity.
_TOO_LARGE = {Precision.FLOAT16: 0x477FF000, Precision.BFLOAT16: 0x7F7F8000}


@dataclass(frozen=True, slots=True)
class Span:
    """Neighbours in a payload that travel alike.

    Attributes:
        nbytes: of them as they are kept.
        narrow: they have 16 bits on the wire, if that was agreed: trainable float32. Others would
            be harmed: a moving average changes by less than what 16 bits show of it, and who
            asks for float64 wants its digits.
    """

    nbytes: int
    narrow: bool

    def wire_nbytes(self, precision: Precision) -> int:
        """Bytes that travel."""
        is_half = self.narrow and precision is not Precision.FLOAT32
        return self.nbytes // 2 if is_half else self.nbytes


def spans_of(variables: Iterable[Variable]) -> tuple[Span, ...]:
    """A payload of these variables."""
    found: list[Span] = []
    for variable in variables:
        narrow = variable.trainable and variable.dtype == "float32"
        if found and found[-1].narrow == narrow:
            found[-1] = Span(found[-1].nbytes + variable.nbytes, narrow)
        else:
            found.append(Span(variable.nbytes, narrow))
    return tuple(found)


def wire_nbytes(spans: Iterable[Span], precision: Precision) -> int:
    """Bytes of a payload that travel."""
    return sum(span.wire_nbytes(precision) for span in spans)


def narrow(values: Array, out: Array, precision: Precision) -> None:
    """Round float32 numbers to 16 bits.

    Args:
        values: as uint32.
        out: as many uint16.
        precision: not FLOAT32.
    """
    kernel(f"narrow_{precision}", _MODULE)(read_only(values), out)


def widen(values: Array, out: Array, precision: Precision) -> None:
    """Numbers of 16 bits as float32, exactly.

    Args:
        values: as uint16.
        out: as many uint32.
        precision: not FLOAT32.
    """
    kernel(f"widen_{precision}", _MODULE)(read_only(values), out)


def fits(values: Array, precision: Precision) -> bool:
    """Whether all float32 numbers, as uint32, are finite and stay so with 16 bits."""
    largest = kernel("largest_magnitude")
    mask, bound = np.uint32(0x7FFFFFFF), _TOO_LARGE[precision]
    values = read_only(values)
    return all(largest(values[cut], mask) < bound for cut in slices(0, values.size))


def warm_up(precision: Precision) -> None:
    """Compile what these functions need."""
    if precision is Precision.FLOAT32:
        return
    wide, half = np.zeros(1, np.uint32), np.zeros(1, np.uint16)
    narrow(wide, half, precision)
    widen(half, wide, precision)
    fits(wide, precision)
