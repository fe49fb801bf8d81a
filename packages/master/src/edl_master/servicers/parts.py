"""A part of the parameters, as called by workers."""

from __future__ import annotations

import time
from contextlib import ExitStack

from edl_master import codec
from edl_master.adapters.buffer_pool import BufferPool
from edl_master.core.identifiers import WorkerId
from edl_master.core.parameters.quantization import wire_nbytes
from edl_master.metrics import Metrics
from edl_master.parameter_server.guarded import GuardedFollower
from edl_master.servicers.checks import check_size, rows_nbytes
from edl_master.servicers.parameters import ParametersServicer, first_frame
from edl_master.servicers.wire_layout import rows_span
from edl_proto.transport.parameters import Call, Frames, Pieces, fill
from edl_proto.v1 import parameters_pb2


class PartsServicer(ParametersServicer):
    """Serves a part as raw frames; what is pushed is staged until the master has decided.

    Args:
        follower: the part.
        buffers: where payloads are received.
        metrics: durations and bytes.
        incarnation: of the master.
    """

    def __init__(
        self, follower: GuardedFollower, buffers: BufferPool, metrics: Metrics, incarnation: str
    ) -> None:
        super().__init__(None, follower, buffers, metrics, incarnation)
        self._follower = follower

    def initialize(self, frames: Frames, call: Call) -> Pieces:
        started = time.perf_counter()
        header = first_frame(parameters_pb2.InitializeHeader(), frames)
        layout = self._check(header)
        check_size("the initial values", header.nbytes, layout.parameter_nbytes)
        values = memoryview(bytearray(header.nbytes))  # held until the master has decided
        fill(frames, values)
        accepted, version = self._follower.initialize(values, WorkerId(header.worker_id))
        self._received.inc(header.nbytes)
        self._took("initialize", started)
        reply = parameters_pb2.InitializeReply(accepted=accepted, version=version)
        yield reply.SerializeToString()

    def push(self, frames: Frames, call: Call) -> Pieces:
        started = time.perf_counter()
        header, layout, precision = self._push_header(frames)
        ids_nbytes, values_nbytes = rows_nbytes(header.rows, layout)
        with ExitStack() as receiving:
            gradient = receiving.enter_context(self._buffers.lent(layout.gradient_nbytes))
            state = receiving.enter_context(self._buffers.lent(header.state_nbytes))
            rows = receiving.enter_context(self._buffers.at_least(ids_nbytes + values_nbytes))
            self._fill(frames, gradient, self._wire_layout(layout).gradient, precision)
            fill(frames, state)
            self._fill_rows(frames, rows, ids_nbytes, precision)
            row_gradients = codec.row_payloads_from(
                header.rows, rows[:ids_nbytes], rows[ids_nbytes:], layout
            )
            held = receiving.pop_all()
            staged = False
            try:
                broken, squares = self._follower.stage(
                    WorkerId(header.worker_id),
                    codec.push_from(header, gradient, state, row_gradients),
                    header.mark,
                    held.close,
                )
                staged = not broken
            finally:
                if not staged:
                    held.close()
        values = rows_span(values_nbytes)
        sent = ids_nbytes + wire_nbytes(values, precision)
        self._received.inc(header.gradient_nbytes + header.state_nbytes + sent)
        self._took("push", started)
        outcome = parameters_pb2.STAGED if staged else parameters_pb2.INVALID
        reply = parameters_pb2.PushReply(outcome=outcome, squares=squares)
        yield reply.SerializeToString()
