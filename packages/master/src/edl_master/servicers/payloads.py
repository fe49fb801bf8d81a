"""The payloads of calls about parameters: incoming gradients, outgoing values and rows.

Sizes are compared with the layout before any payload is read: a header cannot make this process
take more memory than the model has.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy.typing as npt
from google.protobuf.message import Message

from edl_master import codec
from edl_master.adapters.buffer_pool import BufferPool
from edl_master.core.parameters.layout import Layout
from edl_master.core.parameters.push import Gradient
from edl_master.core.parameters.quantization import Precision, wire_nbytes
from edl_master.metrics.instruments import Metrics
from edl_master.parameters import push_codec
from edl_master.parameters.locked_shard import Reading
from edl_master.servicers.checks import check_size, rows_nbytes
from edl_master.servicers.wire_layout import (
    WireLayout,
    all_fit,
    nbytes_of,
    receive,
    rows_span,
    send,
)
from edl_proto.transport.frames import Frames, Pieces, fill
from edl_proto.transport.raw_calls import first_frame
from edl_proto.v1 import parameters_pb2

H = TypeVar("H", bound=Message)


@dataclass(frozen=True, slots=True)
class ReceivedGradient:
    """The payload of a push.

    Attributes:
        gradient: in memory of the stack that ``receive_gradient`` was given.
        next_ids: ids of the rows of the next step, in the rows memory.
        nbytes: that were sent.
    """

    gradient: Gradient
    next_ids: memoryview
    nbytes: int


class PayloadTransfer:
    """Receives and sends payloads for the servicers of one process.

    Args:
        buffers: where payloads are received.
        metrics: durations and bytes.
    """

    def __init__(self, buffers: BufferPool, metrics: Metrics) -> None:
        self.buffers = buffers
        self._layout: WireLayout | None = None
        self._durations = metrics.parameter_request_duration
        self._received = metrics.parameter_bytes.labels("received")
        self._sent = metrics.parameter_bytes.labels("sent")

    def _wire_layout(self, layout: Layout) -> WireLayout:
        if self._layout is None or self._layout.layout is not layout:
            self._layout = WireLayout.of(layout)
        return self._layout

    # --- receiving -------------------------------------------------------------------------

    def receive_gradient(
        self,
        frames: Frames,
        header: parameters_pb2.GradientHeader,
        layout: Layout,
        dense_memory: ExitStack,
        rows_memory: ExitStack,
        next_nbytes: int = 0,
    ) -> ReceivedGradient:
        """Receive gradient, state delta, and rows: ids, ids of the next rows, values.

        Args:
            frames: of the call, after its header.
            header: of the gradient.
            layout: of the shard.
            dense_memory: gives back the memory of gradient and state delta.
            rows_memory: gives back the memory of rows and of all ids.
            next_nbytes: bytes of the ids of the next rows.

        Raises:
            EdlError: SHAPE_MISMATCH.
            FrameError: the frames end early or hold more.
        """
        precision = codec.precision_from(header.precision)
        spans = self._wire_layout(layout).gradient
        check_size("the gradient", header.nbytes, wire_nbytes(spans, precision))
        if header.state_nbytes:
            check_size("the state delta", header.state_nbytes, layout.state_nbytes)
        ids_nbytes, values_nbytes = rows_nbytes(header.rows, layout)
        values_start = ids_nbytes + next_nbytes
        rows = rows_memory.enter_context(self.buffers.borrow_at_least(values_start + values_nbytes))
        gradient = dense_memory.enter_context(self.buffers.borrow(layout.gradient_nbytes))
        state = dense_memory.enter_context(self.buffers.borrow(header.state_nbytes))
        receive(frames, gradient, spans, precision, self.buffers)
        fill(frames, state)
        self._receive_rows(frames, rows, values_start, precision)
        payload = push_codec.row_payload_from(header.rows, rows[:ids_nbytes], rows[values_start:])
        sent = values_start + wire_nbytes(rows_span(values_nbytes), precision)
        nbytes = header.nbytes + header.state_nbytes + sent
        self._received.inc(nbytes)
        return ReceivedGradient(
            Gradient(gradient, state if header.state_nbytes else None, payload),
            rows[ids_nbytes:values_start],
            nbytes,
        )

    def _receive_rows(
        self, frames: Frames, target: memoryview, values_start: int, precision: Precision
    ) -> None:
        """Receive the ids of rows up to ``values_start``, then their values."""
        if precision is Precision.FLOAT32:
            fill(frames, target)
            return
        values = target[values_start:]
        fill(frames, target[:values_start])
        receive(frames, values, rows_span(values.nbytes), precision, self.buffers)

    def receive_values(self, frames: Frames, nbytes: int, target: memoryview) -> None:
        """Receive a payload as it is."""
        fill(frames, target)
        self._received.inc(nbytes)

    # --- sending ---------------------------------------------------------------------------

    def answer(
        self,
        reply: parameters_pb2.PullReply | parameters_pb2.PushReply | parameters_pb2.ReadReply,
        reading: Reading,
        layout: Layout,
        wanted: Precision,
    ) -> Pieces:
        """Yield the reply, then values and rows: as asked, or whole if one does not fit 16 bits."""
        payloads = [
            (reading.values, self._wire_layout(layout).parameters),
            (reading.rows, rows_span(reading.rows.nbytes)),
        ]
        sent = [(values, spans) for values, spans in payloads if values.nbytes]
        fit = all(all_fit(values, spans, wanted) for values, spans in sent)
        precision = wanted if fit else Precision.FLOAT32
        reply.version = reading.version
        reply.nbytes, reply.rows_nbytes = (nbytes_of(*one, precision) for one in payloads)
        reply.precision = codec.precision_to(precision)
        yield reply.SerializeToString()
        for values, spans in sent:
            for piece in send(values.cast("B"), spans, precision, self.buffers):
                self._sent.inc(len(piece))
                yield piece

    def send_whole(self, parts: Iterable[npt.NDArray[Any]]) -> Pieces:
        """Yield the bytes of arrays, as they are."""
        for part in parts:
            if part.size:
                self._sent.inc(part.nbytes)
                yield part.data.cast("B")

    def record_duration(self, method: str, started: float) -> None:
        """Record a served call that began at ``started`` (``time.perf_counter``)."""
        self._durations.labels(method).observe(time.perf_counter() - started)


def header_of(message: H, frames: Frames) -> H:
    """Return the header of a call.

    Raises:
        FrameError: there is none.
        DecodeError: it is of another kind.
    """
    message.ParseFromString(first_frame(frames))
    return message
