"""Tasks, leases and heartbeats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from edl_proto import fields, tensor
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import task_pb2
from edl_worker.codec.jobs import encode_model
from edl_worker.core.model_description import ModelDescription
from edl_worker.core.registration import WorkerIdentity
from edl_worker.core.tasks import (
    EpochLogs,
    ExportInfo,
    HeartbeatAnswer,
    Lease,
    LeaseAnswer,
    LeaseRef,
    Leave,
    MetricState,
    RecordRange,
    TaskKey,
    TaskResult,
    TaskType,
    Wait,
    WorkerPhase,
)

_TASK_TYPES = {task_pb2.TaskType.Value(one.name): one for one in TaskType}


def encode_register(
    identity: WorkerIdentity, environment: Mapping[str, str]
) -> task_pb2.RegisterRequest:
    """Return the registration of a process; ``environment`` has the versions that it runs with."""
    return fields.encode(task_pb2.RegisterRequest, identity, environment=environment)


def encode_ready(
    identity: WorkerIdentity, incarnation: str, model: ModelDescription
) -> task_pb2.ReadyRequest:
    """Return the description of the model that a worker has loaded."""
    described = encode_model(model)
    return fields.encode(
        task_pb2.ReadyRequest, identity, model, incarnation=incarnation, model=described
    )


def encode_lease(
    identity: WorkerIdentity, incarnation: str, wait_s: float
) -> task_pb2.LeaseRequest:
    """Return a request for a task."""
    return fields.encode(task_pb2.LeaseRequest, identity, incarnation=incarnation, wait_s=wait_s)


def decode_lease_answer(reply: task_pb2.LeaseReply) -> LeaseAnswer:
    """Return the answer to a request for a task; raise as ``decode_lease`` does."""
    match reply.WhichOneof("answer"):
        case "lease":
            return decode_lease(reply.lease)
        case "leave":
            return Leave(reply.leave.reason)
        case _:
            return Wait(reply.wait.retry_in_s, reply.wait.reason)


def decode_lease(lease: task_pb2.Lease) -> Lease:
    """Return a lease as the worker knows it.

    Raises:
        EdlError: INTERNAL, the type of the task is unknown.
    """
    return fields.decode(
        Lease,
        lease,
        task=_decode_key(lease.task),
        records=tuple(map(_decode_range, lease.records)),
        metric_states=tuple(map(_decode_metric_state, lease.metric_states)),
        export=fields.decode(ExportInfo, lease.export),
        callbacks=fields.decode(EpochLogs, lease.callbacks),
    )


def _decode_range(records: task_pb2.RecordRange) -> RecordRange:
    # Field by field: a lease of mixed records has hundreds of ranges.
    return RecordRange(
        uri=records.uri,
        format=records.format,
        start=records.start,
        stop=records.stop,
        block_first_record=records.block_first_record,
        block_offset=records.block_offset,
        columns=tuple(records.columns),
        version=records.version,
        end_offset=records.end_offset,
        block_stop_record=records.block_stop_record,
    )


def _decode_key(key: task_pb2.TaskKey) -> TaskKey:
    if key.type not in _TASK_TYPES:
        raise EdlError(
            ErrorCode.INTERNAL,
            f"the master has leased a task of the unknown type {key.type}",
            remedy="Use the same version of edl for master and worker.",
        )
    return TaskKey(_TASK_TYPES[key.type], key.round, key.number)


def decode_ref(ref: task_pb2.LeaseRef) -> LeaseRef:
    """Return the task and token of a lease; raise as ``decode_lease`` does."""
    return LeaseRef(_decode_key(ref.task), ref.token)


def encode_ref(ref: LeaseRef) -> task_pb2.LeaseRef:
    """Return the task and token of a lease, as a message."""
    key = ref.task
    return task_pb2.LeaseRef(
        task=task_pb2.TaskKey(
            type=task_pb2.TaskType.Value(key.type.name), round=key.round, number=key.number
        ),
        token=ref.token,
    )


def encode_result(
    identity: WorkerIdentity, incarnation: str, ref: LeaseRef, result: TaskResult
) -> task_pb2.CompleteRequest:
    """Return the report of a completed task."""
    called = result.callbacks
    return fields.encode(
        task_pb2.CompleteRequest,
        identity,
        result,
        incarnation=incarnation,
        lease=encode_ref(ref),
        metric_states=[_encode_metric_state(state) for state in result.metric_states],
        callbacks=None if called is None else fields.encode(task_pb2.CallbackReply, called),
    )


def _decode_metric_state(state: task_pb2.MetricState) -> MetricState:
    return MetricState(state.name, tuple(tensor.decode(value) for value in state.variables))


def _encode_metric_state(state: MetricState) -> task_pb2.MetricState:
    variables = [tensor.encode(value) for value in state.variables]
    return task_pb2.MetricState(name=state.name, variables=variables)


def encode_failure(
    identity: WorkerIdentity,
    incarnation: str,
    error: EdlError,
    ref: LeaseRef | None,
    *,
    permanent: bool,
) -> task_pb2.FailRequest:
    """Return the report of a failed task, or without a lease of a failed worker."""
    return fields.encode(
        task_pb2.FailRequest,
        identity,
        incarnation=incarnation,
        lease=None if ref is None else encode_ref(ref),
        error=error.to_proto(),
        permanent=permanent,
    )


def encode_return(
    identity: WorkerIdentity,
    incarnation: str,
    refs: Iterable[LeaseRef],
    reason: str,
    *,
    leaving: bool,
) -> task_pb2.ReturnRequest:
    """Return the message that returns unfinished leases."""
    return fields.encode(
        task_pb2.ReturnRequest,
        identity,
        incarnation=incarnation,
        leases=map(encode_ref, refs),
        reason=reason,
        leaving=leaving,
    )


def encode_heartbeat(
    identity: WorkerIdentity,
    incarnation: str,
    refs: Iterable[LeaseRef],
    phase: WorkerPhase,
    counters: Mapping[str, float],
    stacks: str,
) -> task_pb2.HeartbeatRequest:
    """Return a heartbeat as a message."""
    return fields.encode(
        task_pb2.HeartbeatRequest,
        identity,
        incarnation=incarnation,
        leases=map(encode_ref, refs),
        phase=task_pb2.WorkerPhase.Value(phase.name),
        counters=counters,
        stacks=stacks,
    )


def encode_profile(
    identity: WorkerIdentity, incarnation: str, offset: int, content: bytes, *, last: bool
) -> task_pb2.WriteProfileRequest:
    """Return a piece of this worker's profile."""
    return task_pb2.WriteProfileRequest(
        worker_id=identity.worker_id,
        incarnation=incarnation,
        offset=offset,
        content=content,
        last=last,
    )


def decode_heartbeat(reply: task_pb2.HeartbeatReply) -> HeartbeatAnswer:
    """Return the master's answer to a heartbeat; raise as ``decode_lease`` does."""
    return HeartbeatAnswer(
        lost=tuple(map(decode_ref, reply.lost)),
        leave_reason=reply.leave_reason if reply.leave else None,
        wants_stacks=reply.send_stacks,
    )
