"""Sends and receives payloads, quantized on the wire and float32 in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from edl_master.adapters.buffer_pool import BufferPool
from edl_master.core.parameters.layout import Array, Layout
from edl_master.core.parameters.quantization import (
    Precision,
    Span,
    dequantize,
    fits,
    quantize,
    spans_of,
    wire_nbytes,
)
from edl_proto.transport.direct_connection import FrameError
from edl_proto.transport.frames import Frames, Pieces, fill, pieces

_PIECE_BYTES = 1 << 18
"""Bytes of 16-bit numbers that, together with their results, fit into the fastest caches."""


@dataclass(frozen=True, slots=True)
class WireLayout:
    """The payloads of a layout on the wire.

    Attributes:
        parameters, gradient: their spans.
    """

    layout: Layout
    parameters: tuple[Span, ...]
    gradient: tuple[Span, ...]

    @classmethod
    def of(cls, layout: Layout) -> Self:
        trainable = [one for one in layout.variables if one.trainable]
        return cls(layout, spans_of(layout.variables), spans_of(trainable))


def rows_span(nbytes: int) -> tuple[Span, ...]:
    """Return the span of ``nbytes`` bytes of rows, which are sent as they are kept."""
    return (Span(nbytes, quantized=True),)


def receive(
    frames: Frames,
    target: memoryview,
    spans: Sequence[Span],
    precision: Precision,
    buffers: BufferPool,
) -> None:
    """Fill memory with a payload, made float32 piece by piece as it comes.

    Raises:
        FrameError: the frames end early or hold more.
    """
    if precision is Precision.FLOAT32:
        fill(frames, target)
        return
    at = 0
    with buffers.borrow(_PIECE_BYTES) as memory:
        for span in spans:
            part = target[at : at + span.nbytes]
            at += span.nbytes
            if span.quantized:
                _dequantize(pieces(frames, span.wire_nbytes(precision), memory), part, precision)
            else:
                fill(frames, part)


def _dequantize(found: Iterator[memoryview], target: memoryview, precision: Precision) -> None:
    wide, at = _numbers(target), 0
    for piece in found:
        if len(piece) % 2:
            raise FrameError(f"a frame of {len(piece)} bytes ends within a number")
        end = at + len(piece) // 2
        dequantize(np.frombuffer(piece, np.uint16), wide[at:end], precision)
        at = end


def send(
    values: memoryview, spans: Sequence[Span], precision: Precision, buffers: BufferPool
) -> Pieces:
    """Yield the pieces of a payload, each rounded as it is sent."""
    if precision is Precision.FLOAT32:
        yield values
        return
    at, count = 0, _PIECE_BYTES // 2
    with buffers.borrow(_PIECE_BYTES) as memory:
        half = np.frombuffer(memory, np.uint16)
        for span in spans:
            part = values[at : at + span.nbytes]
            at += span.nbytes
            if not span.quantized:
                yield part
                continue
            wide = _numbers(part)
            for start in range(0, wide.size, count):
                cut = wide[start : start + count]
                quantize(cut, half[: cut.size], precision)
                yield memory[: 2 * cut.size]


def all_fit(values: memoryview, spans: Sequence[Span], precision: Precision) -> bool:
    """Return whether all numbers of a payload fit into 16 bits."""
    if precision is Precision.FLOAT32:
        return True
    at = 0
    for span in spans:
        part = values[at : at + span.nbytes]
        at += span.nbytes
        if span.quantized and not fits(_numbers(part), precision):
            return False
    return True


def nbytes_of(values: memoryview, spans: Sequence[Span], precision: Precision) -> int:
    """Return the bytes of a payload that are sent, which may be none."""
    return wire_nbytes(spans, precision) if values.nbytes else 0


def _numbers(part: memoryview) -> Array:
    """float32 numbers as their bits."""
    return np.frombuffer(part, np.uint32) if part.nbytes else np.empty(0, np.uint32)
