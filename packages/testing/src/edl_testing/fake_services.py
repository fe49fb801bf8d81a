"""The gRPC services of the fake master: they decode calls and forward them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import ml_dtypes
import numpy as np

from edl_proto.errors import EdlError, ErrorCode
from edl_proto.transport.frames import fill, split
from edl_proto.v1 import job_pb2, parameters_pb2, task_pb2, task_pb2_grpc
from edl_testing.fake_ledger import FakeLedger

METRICS_TOKEN = "the token of the metrics"
"""The token that scrapers of this master's workers must send."""

HALVES = {job_pb2.FLOAT16: np.float16, job_pb2.BFLOAT16: ml_dtypes.bfloat16}
"""The numpy types of the wire precisions of 16 bits."""


class TaskService(task_pb2_grpc.TasksServicer):
    """The service Tasks: each call is checked and takes effect under one hold of the lock.

    A call from before a restart must not change what comes after it.
    """

    def __init__(self, master: FakeLedger) -> None:
        self._master = master

    def _check_caller(self, incarnation: str) -> FakeLedger:
        if incarnation != self._master.incarnation:
            raise EdlError(ErrorCode.STALE_INCARNATION, "the master was replaced")
        return self._master

    def Register(self, request: Any, context: Any) -> task_pb2.RegisterReply:
        with self._master.changed:
            self._master.received.registered.append(request)
            self._master.changed.notify_all()
            return task_pb2.RegisterReply(
                job=self._master.job,
                incarnation=self._master.incarnation,
                heartbeat_every_s=0.1,
                metrics_token=METRICS_TOKEN,
            )

    def Ready(self, request: Any, context: Any) -> task_pb2.ReadyReply:
        with self._master.changed:
            master = self._check_caller(request.incarnation)
            master.received.ready.append(request)
            master.variables = list(request.model.variables)
            master.changed.notify_all()
            return task_pb2.ReadyReply(
                send_initial_values=bool(master.variables) and not master.initialized,
                layout_fingerprint="layout",
            )

    def Lease(self, request: Any, context: Any) -> task_pb2.LeaseReply:
        with self._master.changed:
            master = self._check_caller(request.incarnation)
            waiting = len(master.received.ready) < master.workers_wanted or (
                request.worker_id in master.leased_to
                and len(master.leased_to) < master.workers_wanted
            )
            lease = None if waiting else master.next_lease(request.worker_id)
            if lease is not None:
                master.leased_to.add(request.worker_id)
                master.changed.notify_all()
                return task_pb2.LeaseReply(lease=lease)
            if master.stage() is None:
                return task_pb2.LeaseReply(leave=task_pb2.Leave(reason="job-over"))
        return task_pb2.LeaseReply(wait=task_pb2.Wait(retry_in_s=0.02, reason="no task now"))

    def Complete(self, request: Any, context: Any) -> task_pb2.CompleteReply:
        with self._master.changed:
            master = self._check_caller(request.incarnation)
            task = master.find_lease(request.lease)
            trains = task.lease.task.type == task_pb2.TRAINING
            if trains and master.replicated and request.minibatches > task.applied:
                task.complete = request  # it is done when its last steps count
                return task_pb2.CompleteReply()
            if trains and request.minibatches != task.applied:
                raise EdlError(
                    ErrorCode.STALE_LEASE, f"{request.minibatches} minibatches, not {task.applied}"
                )
            task.done, task.token, task.complete = True, 0, request
            if master.accumulated and all(t.done for t in master.stages[master.entered - 1]):
                master.apply_accumulated()
            master.changed.notify_all()
        return task_pb2.CompleteReply()

    def Fail(self, request: Any, context: Any) -> task_pb2.FailReply:
        with self._master.changed:
            master = self._check_caller(request.incarnation)
            master.received.failed.append(request)
            if request.HasField("lease"):
                task = master.find_lease(request.lease)
                task.failures.append(request)
                task.token = 0
                task.done = request.permanent or len(task.failures) >= 3
            master.changed.notify_all()
        return task_pb2.FailReply()

    def Return(self, request: Any, context: Any) -> task_pb2.ReturnReply:
        with self._master.changed:
            master = self._check_caller(request.incarnation)
            if not (master.replicated and request.leaving):  # the group releases them
                for lease in request.leases:
                    master.revoke(lease)
            master.received.returned.append(request)
            if request.leaving:
                master.replicas.leave(request.worker_id)
            master.changed.notify_all()
        return task_pb2.ReturnReply()

    def Heartbeat(self, request: Any, context: Any) -> task_pb2.HeartbeatReply:
        with self._master.changed:
            master = self._check_caller(request.incarnation)
            master.received.heartbeats.append(request)
            master.changed.notify_all()
            return task_pb2.HeartbeatReply(
                lost=master.lost,
                leave=bool(master.leave_reason),
                leave_reason=master.leave_reason,
                send_stacks=master.send_stacks and not request.stacks,
            )

    def WriteProfile(self, request: Any, context: Any) -> task_pb2.WriteProfileReply:
        with self._master.changed:
            self._check_caller(request.incarnation).received.profiles.append(request)
        return task_pb2.WriteProfileReply()


class ParameterService:
    """The service Parameters, whose calls hold the lock as those of ``TaskService`` do."""

    def __init__(self, master: FakeLedger) -> None:
        self._master = master

    def _check_caller(self, header: Any) -> FakeLedger:
        if header.incarnation != self._master.incarnation:
            raise EdlError(ErrorCode.STALE_INCARNATION, "the master was replaced")
        assert header.layout_fingerprint == "layout"
        return self._master

    def initialize(self, frames: Iterator[bytes], context: Any) -> Iterator[bytes]:
        header = parameters_pb2.InitializeHeader.FromString(next(frames))
        values = np.empty(header.nbytes, np.uint8)
        fill(frames, values.data)
        with self._master.changed:
            master = self._check_caller(header)
            accepted = not master.initialized
            if accepted:
                master.values, master.initialized = values, True
            reply = parameters_pb2.InitializeReply(accepted=accepted)
            master.changed.notify_all()
        yield reply.SerializeToString()

    def put_values(self, frames: Iterator[bytes], context: Any) -> Iterator[bytes]:
        header = parameters_pb2.PutValuesHeader.FromString(next(frames))
        values = np.empty(header.nbytes, np.uint8)
        fill(frames, values.data)
        with self._master.changed:
            master = self._check_caller(header)
            accepted = header.version == master.replicas.counted
            if accepted:
                master.values, master.version = values, header.version
                for name, (version, _) in master.frozen.items():
                    if version == header.version:
                        master.frozen[name] = version, values.copy()
                master.replicas.on_stored(header.version)
        yield parameters_pb2.PutValuesReply(accepted=accepted).SerializeToString()

    def pull(self, frames: Iterator[bytes], context: Any) -> Iterator[bytes]:
        header = parameters_pb2.PullHeader.FromString(next(frames))
        with self._master.changed:
            master = self._check_caller(header)
            reply = parameters_pb2.PullReply(initialized=master.initialized)
            master.received.pulls.append(header)
            if header.HasField("permit_for"):
                reply.permit_granted = master.take_permit(header.permit_for, header.wait_s)
            version, values = master.version, master.values
            if header.frozen and not header.frozen.startswith("slots/"):  # SGD has none
                version, values = master.frozen[header.frozen]
            have = header.have_version if header.HasField("have_version") else None
            copy = values.copy() if have != version else None
            master.changed.notify_all()
        reply.version = version
        yield from _reply(reply, copy, header.precision, master.trainable_nbytes)

    def put_rows(self, frames: Iterator[bytes], context: Any) -> Iterator[bytes]:
        raise NotImplementedError("the fake master has no embedding tables")

    scan_rows = put_rows

    def push(self, frames: Iterator[bytes], context: Any) -> Iterator[bytes]:
        header = parameters_pb2.PushHeader.FromString(next(frames))
        half = HALVES.get(header.gradient.precision)
        gradient = np.empty(header.gradient.nbytes // (2 if half else 4), half or np.float32)
        state = np.empty(header.gradient.state_nbytes // 4, np.float32)
        for array in (gradient, state):
            fill(frames, array.view(np.uint8).data)
        gradient = gradient.astype(np.float32)
        reply = parameters_pb2.PushReply()
        copy = None
        with self._master.changed:
            master = self._check_caller(header)
            reply.outcome = master.push(header, gradient, state)
            if header.HasField("next"):
                reply.permit_granted = master.sync and master.take_permit(
                    header.claim.lease, header.next.wait_s
                )
                copy = master.values.copy() if master.version != header.claim.base_version else None
            reply.version = master.version
            cut, master.drop_next_reply = master.drop_next_reply, False
        if cut:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the connection broke")
        yield from _reply(reply, copy, header.next.precision, master.trainable_nbytes)


def _reply(
    reply: Any, values: np.ndarray[Any, Any] | None, precision: Any, trainable_nbytes: int
) -> Iterator[bytes]:
    if values is not None and (half := HALVES.get(precision)):
        trainable = values[:trainable_nbytes].view(np.float32).astype(half).view(np.uint8)
        values = np.concatenate([trainable, values[trainable_nbytes:]])
        reply.precision = precision
    reply.nbytes = 0 if values is None else values.nbytes
    yield reply.SerializeToString()
    if values is not None:
        yield from split(values.data)
