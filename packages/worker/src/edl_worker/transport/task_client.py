"""Adapter to the master's service Tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import grpc

from edl_proto.errors import EdlError
from edl_proto.v1 import task_pb2_grpc
from edl_runtime.monitoring.installed_versions import installed_versions
from edl_worker.codec import jobs, tasks
from edl_worker.core.model_description import ModelDescription
from edl_worker.core.registration import JobAdmission, Registration
from edl_worker.core.tasks import (
    HeartbeatAnswer,
    LeaseAnswer,
    LeaseRef,
    TaskResult,
    WorkerPhase,
)
from edl_worker.transport.master_connection import MasterConnection, raise_reported

_PIECE_BYTES = 4 << 20


class TaskClient:
    """A client that registers the worker, leases tasks and reports them.

    Methods raise ``EdlError`` for an error that the master reports, ``MasterReplacedError`` when
    the master is another incarnation, and ``LeavingError`` when the worker has to leave while it
    waits for a master that is away; after ``master_wait_s`` without a reply it has to leave.
    """

    def __init__(self, connection: MasterConnection) -> None:
        self._connection = connection
        self._settings = connection.settings
        self._identity = connection.identity
        self._stub = task_pb2_grpc.TasksStub(connection.channel)

    @property
    def incarnation(self) -> str:
        """The incarnation of the master with which this worker has registered last."""
        return self._connection.incarnation

    def register(self) -> Registration:
        """Register this process; all later calls name the incarnation that replies."""
        request = tasks.encode_register(self._identity, installed_versions())
        timeout_s = self._settings.call_timeout_s
        reply = self._connection.call(
            "Register", lambda: self._stub.Register(request, timeout=timeout_s)
        )
        self._connection.use_incarnation(reply.incarnation)
        return jobs.decode_registration(reply)

    def ready(self, model: ModelDescription) -> JobAdmission:
        """Describe the loaded model."""
        request = tasks.encode_ready(self._identity, self.incarnation, model)
        timeout_s = self._settings.ready_timeout_s
        reply = self._connection.call("Ready", lambda: self._stub.Ready(request, timeout=timeout_s))
        return jobs.decode_admission(reply)

    def lease(self, incarnation: str) -> LeaseAnswer:
        """Ask for a task of this incarnation of the master."""
        wait_s = self._settings.task_wait_s
        log_index = self._connection.log_index
        request = tasks.encode_lease(self._identity, incarnation, wait_s)
        timeout_s = wait_s + self._settings.call_timeout_s
        reply = self._connection.call("Lease", lambda: self._stub.Lease(request, timeout=timeout_s))
        log_index.advance(reply.log_index)
        return tasks.decode_lease_answer(reply)

    def complete(self, ref: LeaseRef, result: TaskResult) -> None:
        """Report a completed task."""
        request = tasks.encode_result(self._identity, self.incarnation, ref, result)
        timeout_s = self._settings.call_timeout_s
        self._connection.call("Complete", lambda: self._stub.Complete(request, timeout=timeout_s))

    def fail(self, error: EdlError, *, ref: LeaseRef | None = None, permanent: bool) -> None:
        """Report that a task has failed, or without a lease that this worker has failed."""
        request = tasks.encode_failure(
            self._identity, self.incarnation, error, ref, permanent=permanent
        )
        timeout_s = self._settings.call_timeout_s
        self._connection.call("Fail", lambda: self._stub.Fail(request, timeout=timeout_s))

    def return_leases(
        self, refs: Iterable[LeaseRef], reason: str, *, leaving: bool, within_s: float
    ) -> None:
        """Hand leases back undone, trying for ``within_s`` at most; also while leaving."""
        request = tasks.encode_return(
            self._identity, self.incarnation, refs, reason, leaving=leaving
        )
        self._connection.call_while_leaving(
            "Return", lambda left_s: self._stub.Return(request, timeout=left_s), within_s
        )

    def heartbeat(
        self,
        refs: Iterable[LeaseRef],
        phase: WorkerPhase,
        counters: Mapping[str, float],
        stacks: str = "",
    ) -> HeartbeatAnswer:
        """Send one heartbeat, without a second attempt: the next one comes soon enough.

        Args:
            refs: leases to renew.
            counters: of this worker since it started.
            stacks: of all threads, if the last answer wanted them.

        Raises:
            grpc.RpcError: the master cannot be reached.
        """
        request = tasks.encode_heartbeat(
            self._identity, self.incarnation, refs, phase, counters, stacks
        )
        try:
            reply = self._stub.Heartbeat(request, timeout=self._settings.call_timeout_s)
        except grpc.RpcError as error:
            raise_reported(error)
            raise
        return tasks.decode_heartbeat(reply)

    def write_profile(self, packed: bytes) -> None:
        """Send this worker's profile to where TensorBoard finds it.

        Args:
            packed: an XSpace, gzipped.
        """
        for offset in range(0, len(packed), _PIECE_BYTES):
            last = offset + _PIECE_BYTES >= len(packed)
            self._write_piece(offset, packed[offset : offset + _PIECE_BYTES], last=last)

    def _write_piece(self, offset: int, content: bytes, *, last: bool) -> None:
        request = tasks.encode_profile(self._identity, self.incarnation, offset, content, last=last)
        timeout_s = self._connection.transfer_timeout_s(len(content))
        self._connection.call(
            "WriteProfile", lambda: self._stub.WriteProfile(request, timeout=timeout_s)
        )

    def lost_error(self, seconds: float, cause: str) -> EdlError:
        """Return the error of a worker that could not reach the master for so long."""
        return self._connection.master_lost(seconds, cause)
