"""The calls of workers to a parameter server: it prepares what the coordinator decides."""

from __future__ import annotations

import time
from contextlib import ExitStack

from edl_master import codec
from edl_master.core.identifiers import WorkerId
from edl_master.parameters import push_codec
from edl_master.parameters.locked_shard import ReadRequest
from edl_master.servicers.checks import (
    check_size,
    rows_nbytes,
)
from edl_master.servicers.payloads import header_of
from edl_master.servicers.rows import RowsServicer
from edl_proto.transport.frames import Frames, Pieces, fill
from edl_proto.transport.listener import Call
from edl_proto.v1 import parameters_pb2


class ShardServicer(RowsServicer):
    """Serves ``SHARD``."""

    def propose(self, frames: Frames, call: Call) -> Pieces:
        started = time.perf_counter()
        header = header_of(parameters_pb2.ProposeHeader(), frames)
        layout = self._check(header)
        check_size("the initial values", header.nbytes, layout.parameter_nbytes)
        values = memoryview(bytearray(header.nbytes))  # held until the coordinator has decided
        self._transfer.receive_values(frames, header.nbytes, values)
        self._shard.propose(WorkerId(header.worker_id), values)
        self._transfer.record_duration("propose", started)
        yield parameters_pb2.ProposeReply().SerializeToString()

    def prepare(self, frames: Frames, call: Call) -> Pieces:
        started = time.perf_counter()
        header = header_of(parameters_pb2.PrepareHeader(), frames)
        layout = self._check(header)
        with ExitStack() as memory:
            received = self._transfer.receive_gradient(
                frames, header.gradient, layout, memory, memory
            )
            held = memory.pop_all()
            is_held = False
            try:
                not_finite, squares = self._shard.prepare(
                    WorkerId(header.worker_id),
                    push_codec.key_from(header.lease, header.minibatch),
                    received.gradient,
                    header.log_index,
                    held.close,
                )
                is_held = not not_finite
            finally:
                if not is_held:
                    held.close()
        self._transfer.record_duration("prepare", started)
        reply = parameters_pb2.PrepareReply(finite=is_held, squares=squares)
        yield reply.SerializeToString()

    def read(self, frames: Frames, call: Call) -> Pieces:
        started = time.perf_counter()
        header = header_of(parameters_pb2.ReadHeader(), frames)
        layout = self._check(header)
        ids_nbytes, _ = rows_nbytes(header.rows, layout)
        with self._transfer.buffers.borrow_at_least(ids_nbytes) as ids:
            fill(frames, ids)
            request = ReadRequest(
                frozen=header.frozen,
                rows=push_codec.row_ids_from(header.rows, ids),
                only_rows=header.only_rows,
            )
            with self._shard.read(request, header.log_index) as reading:
                self._transfer.record_duration("read", started)
                wanted = codec.precision_from(header.precision)
                reply = parameters_pb2.ReadReply()
                yield from self._transfer.answer(reply, reading, layout, wanted)
