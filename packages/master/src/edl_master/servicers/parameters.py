"""The calls of workers about parameters, to a master that has the values itself."""

from __future__ import annotations

import time
from contextlib import ExitStack

from edl_master import codec
from edl_master.core.identifiers import Version, WorkerId
from edl_master.core.parameters.permits import PermitGranted
from edl_master.parameters import push_codec
from edl_master.parameters.locked_shard import LockedShard, ReadRequest
from edl_master.parameters.plane import ParameterPlane, WaitLimit
from edl_master.servicers.checks import (
    bounded_wait,
    check_permit,
    check_size,
    rows_nbytes,
)
from edl_master.servicers.payloads import PayloadTransfer, header_of
from edl_master.servicers.push_report import PushReporter
from edl_master.servicers.rows import RowsServicer
from edl_proto.transport.frames import Frames, Pieces, fill
from edl_proto.transport.listener import Call
from edl_proto.v1 import parameters_pb2


class ParametersServicer(RowsServicer):
    """Serves ``PARAMETERS``: headers are decoded, payloads pass as raw bytes.

    Args:
        plane: the parameters.
        shard: its values.
        transfer: receives and sends payloads.
        reporter: receives the outcomes of pushes.
        incarnation: of this master.
    """

    def __init__(
        self,
        plane: ParameterPlane,
        shard: LockedShard,
        transfer: PayloadTransfer,
        reporter: PushReporter,
        incarnation: str,
    ) -> None:
        super().__init__(shard, transfer, incarnation)
        self._plane = plane
        self._reporter = reporter

    def initialize(self, frames: Frames, call: Call) -> Pieces:
        started = time.perf_counter()
        header = header_of(parameters_pb2.InitializeHeader(), frames)
        layout = self._check(header)
        check_size("the initial values", header.nbytes, layout.parameter_nbytes)
        with self._transfer.buffers.borrow(header.nbytes) as values:
            self._transfer.receive_values(frames, header.nbytes, values)
            accepted = self._plane.initialize(WorkerId(header.worker_id), values)
        self._transfer.record_duration("initialize", started)
        yield parameters_pb2.InitializeReply(accepted=accepted).SerializeToString()

    def put_values(self, frames: Frames, call: Call) -> Pieces:
        started = time.perf_counter()
        header = header_of(parameters_pb2.PutValuesHeader(), frames)
        layout = self._check(header)
        check_size("the values", header.nbytes, layout.parameter_nbytes)
        values = memoryview(bytearray(header.nbytes))  # held until the job uses them
        self._transfer.receive_values(frames, header.nbytes, values)
        worker, version = WorkerId(header.worker_id), Version(header.version)
        with self._shard.acquire() as shard:
            shard.hold_values(worker, version, values)
        accepted = self._reporter.report_values(worker, version)
        with self._shard.acquire() as shard:
            if not accepted:
                shard.drop_values(worker, version)
        self._transfer.record_duration("put_values", started)
        yield parameters_pb2.PutValuesReply(accepted=accepted).SerializeToString()

    def pull(self, frames: Frames, call: Call) -> Pieces:
        started = time.perf_counter()
        header = header_of(parameters_pb2.PullHeader(), frames)
        layout = self._check(header)
        ids_nbytes, _ = rows_nbytes(header.rows, layout)
        with self._transfer.buffers.borrow_at_least(ids_nbytes) as ids:
            fill(frames, ids)
            request = ReadRequest(
                Version(header.have_version) if header.HasField("have_version") else None,
                header.frozen,
                push_codec.row_ids_from(header.rows, ids),
            )
            permit_for = None
            if header.HasField("permit_for"):
                permit_for = codec.lease_from(header.permit_for)
            waiting = WaitLimit(bounded_wait(header.wait_s), call.is_active)
            with self._plane.pull(
                request,
                permit_for=permit_for,
                worker=WorkerId(header.worker_id),
                waiting=waiting,
            ) as pulled:
                self._transfer.record_duration("pull", started)
                check_permit(pulled.permit)
                reply = parameters_pb2.PullReply(
                    permit_granted=isinstance(pulled.permit, PermitGranted),
                    initialized=pulled.reading.initialized,
                )
                wanted = codec.precision_from(header.precision)
                yield from self._transfer.answer(reply, pulled.reading, layout, wanted)

    def push(self, frames: Frames, call: Call) -> Pieces:
        started = time.perf_counter()
        header = header_of(parameters_pb2.PushHeader(), frames)
        layout = self._check(header)
        next_nbytes, _ = rows_nbytes(header.next.rows, layout)
        worker = WorkerId(header.worker_id)
        with ExitStack() as rows_memory, ExitStack() as dense_memory:
            received = self._transfer.receive_gradient(
                frames, header.gradient, layout, dense_memory, rows_memory, next_nbytes
            )
            claim = push_codec.claim_from(header.claim, worker)
            answer, waiting = None, WaitLimit()
            if header.HasField("next"):
                ids = push_codec.row_ids_from(header.next.rows, received.next_ids)
                answer = ReadRequest(claim.base_version, rows=ids)
                waiting = WaitLimit(bounded_wait(header.next.wait_s), call.is_active)
            with self._plane.push(
                worker,
                claim,
                received.gradient,
                release=dense_memory.pop_all().close,
                answer=answer,
                waiting=waiting,
                on_decided=lambda result: self._reporter.report(worker, claim, header.step, result),
            ) as pushed:
                self._transfer.record_duration("push", started)
                reply = parameters_pb2.PushReply(
                    outcome=push_codec.outcome_to(pushed.result.outcome),
                    version=pushed.result.version,
                    permit_granted=pushed.permit_granted,
                )
                if pushed.reading is None:
                    yield reply.SerializeToString()
                    return
                wanted = codec.precision_from(header.next.precision)
                yield from self._transfer.answer(reply, pushed.reading, layout, wanted)
