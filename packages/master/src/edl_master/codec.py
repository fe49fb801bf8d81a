"""The codec between protobuf messages and the core's types, for tasks, workers and errors.

``reporting.status_codec`` has the job's status, ``parameters`` and ``server_group`` have the
codecs of pushes and of the command log. Servicers and ``app`` read and build the other messages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from math import isfinite

from google.protobuf.internal.containers import RepeatedCompositeFieldContainer as Repeated

from edl_master.core import events
from edl_master.core.effects import LeaseGranted
from edl_master.core.failure import Failure
from edl_master.core.identifiers import (
    AppliedCount,
    HeldLease,
    InstanceId,
    TaskKey,
    TaskType,
    Token,
    WorkerId,
)
from edl_master.core.layer_states import LayerSummary
from edl_master.core.metric_states import Addable, MetricState, add_up
from edl_master.core.parameters.layout import Variable
from edl_master.core.parameters.quantization import Precision
from edl_master.core.parameters.table_spec import TableSpec, checked_initial
from edl_master.core.settings import JobType
from edl_master.core.view import JobView
from edl_proto import fields, tensor
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.limits import MAX_CALLBACK_STATE_NBYTES
from edl_proto.printable import one_line
from edl_proto.v1 import error_pb2, job_pb2, task_pb2
from edl_runtime.public_settings import without_passwords

_TASK_TYPES = {
    task_pb2.TRAINING: TaskType.TRAINING,
    task_pb2.EVALUATION: TaskType.EVALUATION,
    task_pb2.EVALUATION_SUMMARY: TaskType.EVALUATION_SUMMARY,
    task_pb2.PREDICTION: TaskType.PREDICTION,
    task_pb2.EXPORT: TaskType.EXPORT,
    task_pb2.CALLBACKS: TaskType.CALLBACKS,
}
_TASK_TYPES_OUT = {core: wire for wire, core in _TASK_TYPES.items()}

_PRECISIONS = {
    job_pb2.FLOAT32: Precision.FLOAT32,
    job_pb2.FLOAT16: Precision.FLOAT16,
    job_pb2.BFLOAT16: Precision.BFLOAT16,
}
_PRECISIONS_OUT = {core: wire for wire, core in _PRECISIONS.items()}

JOB_TYPES = {
    job_pb2.TRAIN: JobType.TRAIN,
    job_pb2.EVALUATE: JobType.EVALUATE,
    job_pb2.PREDICT: JobType.PREDICT,
}


_MAX_STATE_SIZE = 1 << 20
"""Numbers in one variable of a metric's state; an AUC has some hundreds."""


_MAX_NAME_LENGTH, _MAX_TEXT_LENGTH, _MAX_STACKS_LENGTH = 256, 1 << 15, 1 << 18
"""Characters of what a worker says: events, status and snapshots keep it."""

_MAX_LEASES, _MAX_WARNINGS, _MAX_METRICS, _MAX_CALLBACKS = 1000, 100, 500, 100
_MAX_TEXTS_OF_LAYERS = 30_000
"""In one message."""


def _truncate(text: str, most: int = _MAX_TEXT_LENGTH) -> str:
    """Truncate a worker's text that is too long to its beginning and its end."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]} [{len(text) - 2 * half} characters are left out] {text[-half:]}"


def malformed_message(what: str) -> EdlError:
    """Return the error for a message that no worker of this version sends."""
    return EdlError(
        ErrorCode.USAGE,
        what,
        remedy="Use the same version of edl for client, master and worker.",
    )


# --- errors --------------------------------------------------------------------------------


def failure_of(error: EdlError) -> Failure:
    """Convert an error to the core's failure."""
    return failure_from(error.to_proto())


def failure_from(message: error_pb2.Error) -> Failure:
    """Decode an error for the core, without passwords; an unknown code becomes INTERNAL."""
    names = {code: name for name, code in ErrorCode.items() if code}
    return Failure(
        names.get(message.code, "INTERNAL"),
        *(
            without_passwords(_truncate(text))
            for text in (message.what, message.where, message.remedy, message.detail)
        ),
    )


def error_to(failure: Failure) -> error_pb2.Error:
    """Convert a failure to a message; a code that the protocol lacks becomes INTERNAL."""
    code = dict(ErrorCode.items()).get(failure.code, ErrorCode.INTERNAL)
    return fields.encode(error_pb2.Error, failure, code=code)


# --- tasks ---------------------------------------------------------------------------------


def task_from(message: task_pb2.TaskKey) -> TaskKey:
    """Convert the message of a task's key.

    Raises:
        EdlError: USAGE; the type of the task is unknown.
    """
    if message.type not in _TASK_TYPES:
        raise malformed_message(f"unknown task type {message.type}")
    return TaskKey(_TASK_TYPES[message.type], message.round, message.number)


def task_to(task: TaskKey) -> task_pb2.TaskKey:
    """Convert the key of a task to a message."""
    return task_pb2.TaskKey(type=_TASK_TYPES_OUT[task.type], round=task.round, number=task.number)


def lease_from(message: task_pb2.LeaseRef) -> HeldLease:
    """Convert a lease that a worker names; raises as ``task_from``."""
    return HeldLease(task_from(message.task), Token(message.token))


def leases_from(messages: Sequence[task_pb2.LeaseRef]) -> tuple[HeldLease, ...]:
    """Convert leases that a worker names; raises as ``task_from``."""
    if len(messages) > _MAX_LEASES:
        raise malformed_message(f"a worker names {len(messages)} leases, more than {_MAX_LEASES}")
    return tuple(map(lease_from, messages))


def lease_ref_to(lease: HeldLease) -> task_pb2.LeaseRef:
    """Convert a held lease to a message."""
    return task_pb2.LeaseRef(task=task_to(lease.task), token=lease.token)


def lease_to(
    lease: LeaseGranted,
    skip_minibatches: int,
    records: Sequence[task_pb2.RecordRange],
    part_path: str,
    export: task_pb2.ExportInfo | None,
) -> task_pb2.Lease:
    """Convert a lease for its holder; the arguments are what the core does not know."""
    call = lease.callbacks
    return fields.encode(
        task_pb2.Lease,
        lease,
        task=task_to(lease.task),
        records=records,
        skip_minibatches=skip_minibatches,
        parameter_version=lease.version or 0,
        metric_states=map(metric_state_to, add_up(lease.metric_states)),
        part_path=part_path,
        export=export,
        callbacks=None if call is None else fields.encode(task_pb2.CallbackCall, call),
    )


def _reply_from(message: task_pb2.CallbackReply) -> events.CallbackReply:
    """Convert the requests of callbacks.

    Raises:
        EdlError: USAGE; the state is too large, or the learning rate is no number.
    """
    if len(message.state) > MAX_CALLBACK_STATE_NBYTES:
        raise malformed_message(f"the state of callbacks is too large: {len(message.state)} bytes")
    rate = message.learning_rate if message.HasField("learning_rate") else None
    if rate is not None and not isfinite(rate):
        raise malformed_message(
            f"callbacks have set the learning rate to {rate}, which is not finite"
        )
    return events.CallbackReply(
        message.state, message.stopped_by, rate, message.keep_best, message.restore_best
    )


def export_to(lease: LeaseGranted, view: JobView, data: bytes) -> task_pb2.ExportInfo:
    """Return what a worker writes into the exported model's metadata."""
    return task_pb2.ExportInfo(
        parameter_version=lease.version or 0,
        records_trained=view.records_trained,
        epochs=view.progress.epochs_done,
        metrics=view.metrics,
        crashes=lease.crashes,
        data=data,
    )


def completion_from(
    message: task_pb2.CompleteRequest, applied: AppliedCount | None
) -> events.TaskCompleted:
    """Convert the report of a completed task.

    Args:
        message: the worker's request.
        applied: what of a training task is in the model, of all its holders; else None.

    Raises:
        EdlError: USAGE; the task's type or a metric's state is malformed.
    """
    _check_names(message.metrics, "metrics", _MAX_METRICS)
    return events.TaskCompleted(
        worker=WorkerId(message.worker_id),
        lease=lease_from(message.lease),
        minibatches=message.minibatches,
        applied=applied.minibatches if applied else 0,
        records=message.records,
        examples=applied.records if applied else message.examples,
        metric_states=tuple(map(metric_state_from, message.metric_states)),
        metrics=dict(message.metrics),
        warnings=_warnings_from(message.warnings),
        callbacks=_reply_from(message.callbacks) if message.HasField("callbacks") else None,
    )


def _check_names(names: Collection[str], what: str, most: int) -> None:
    if len(names) > most or any(len(name) > _MAX_NAME_LENGTH for name in names):
        raise malformed_message(
            f"a worker sent {len(names)} {what}: too many, or with too long names"
        )
    if any(one_line(name) != name for name in names):
        raise malformed_message(f"a worker sent {what} with control characters in their names")


def _warnings_from(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the worker's warnings about what the trained model will lack."""
    return tuple(map(_truncate, islice(texts, _MAX_WARNINGS)))


def failed_from(
    message: task_pb2.FailRequest,
) -> events.TaskFailed | events.WorkerFailed | None:
    """Convert the report that a task, or the worker itself, has failed.

    Returns None for a worker whose next instance may do better: its exit is what counts.
    """
    worker, failure = WorkerId(message.worker_id), failure_from(message.error)
    if message.HasField("lease"):
        return events.TaskFailed(worker, lease_from(message.lease), failure, message.permanent)
    return (
        events.WorkerFailed(worker, InstanceId(message.instance), failure)
        if message.permanent
        else None
    )


def metric_state_from(message: task_pb2.MetricState) -> MetricState:
    """Convert the message of one metric's variables.

    Raises:
        EdlError: USAGE; a variable is malformed or too large.
    """
    return MetricState(message.name, tuple(_addable_from(v) for v in message.variables))


def _addable_from(message: task_pb2.Tensor) -> Addable:
    try:
        array = tensor.decode(message)
    except ValueError as error:
        raise malformed_message(str(error)) from error
    if array.size > _MAX_STATE_SIZE:
        raise malformed_message(f"a metric's state of {array.size} numbers is too large")
    return Addable(array.dtype.name, array)


def metric_state_to(state: MetricState) -> task_pb2.MetricState:
    """Convert the variables of one metric to a message."""
    variables = [tensor.encode(variable.narrow) for variable in state.variables]
    return task_pb2.MetricState(name=state.name, variables=variables)


# --- workers and parameters ----------------------------------------------------------------


def variables_from(messages: Repeated[task_pb2.Variable]) -> tuple[Variable, ...]:
    """Return the dense variables of a model, in the order of its layout."""
    return tuple(
        Variable(message.name, tuple(message.shape), message.dtype, message.trainable)
        for message in messages
    )


def registered_from(message: task_pb2.RegisterRequest) -> events.WorkerRegistered:
    """Convert the registration of an instance; raises as ``task_from``."""
    if max(len(message.instance), len(message.host)) > _MAX_NAME_LENGTH:
        raise malformed_message(
            f"the name of an instance or a host has over {_MAX_NAME_LENGTH} characters"
        )
    return events.WorkerRegistered(
        WorkerId(message.worker_id), InstanceId(message.instance), message.host, message.pid
    )


def ready_from(message: task_pb2.ReadyRequest) -> events.WorkerReady:
    """Convert the report that an instance has loaded the model; raises as ``task_from``."""
    worker, instance = WorkerId(message.worker_id), InstanceId(message.instance)
    callbacks, warnings = tuple(message.model.callbacks), _warnings_from(message.warnings)
    _check_names(callbacks, "callbacks", _MAX_CALLBACKS)
    states = tuple(
        LayerSummary(each.name, each.place, each.digest, tuple(each.numbers), each.optional)
        for each in message.model.layer_states
    )
    texts = [text for each in states for text in (each.name, each.place, each.digest)]
    _check_names(texts, "texts of layers", _MAX_TEXTS_OF_LAYERS)
    return events.WorkerReady(worker, instance, warnings, callbacks, states)


def returned_from(message: task_pb2.ReturnRequest) -> events.LeasesReturned:
    """Convert the leases that a worker gives back; raises as ``task_from``."""
    return events.LeasesReturned(
        WorkerId(message.worker_id),
        leases_from(message.leases),
        _truncate(message.reason, _MAX_NAME_LENGTH),
        message.leaving,
        InstanceId(message.instance) if message.instance else None,
    )


def heartbeat_from(message: task_pb2.HeartbeatRequest) -> events.HeartbeatReceived:
    """Convert a worker's heartbeat; raises as ``task_from``."""
    phases = {phase: name.lower() for name, phase in task_pb2.WorkerPhase.items()}
    return events.HeartbeatReceived(
        WorkerId(message.worker_id),
        InstanceId(message.instance),
        leases_from(message.leases),
        phases.get(message.phase, ""),
        _truncate(message.stacks, _MAX_STACKS_LENGTH),
    )


def tables_from(messages: Repeated[task_pb2.EmbeddingTable]) -> tuple[TableSpec, ...]:
    """Embedding tables as the core has them. Raises: LayoutError: one of them makes no sense."""
    return tuple(
        TableSpec(
            message.name,
            message.dim,
            checked_initial(message.distribution, message.center, message.spread, message.name),
            message.seed,
            message.min_count or 1,
            message.max_age,
        )
        for message in messages
    )


def precision_from(message: job_pb2.WirePrecision.ValueType) -> Precision:
    """Convert the message of the wire precision.

    Raises:
        EdlError: USAGE; the precision is unknown.
    """
    if message not in _PRECISIONS:
        raise malformed_message(f"unknown precision {message}")
    return _PRECISIONS[message]


def precision_to(precision: Precision) -> job_pb2.WirePrecision.ValueType:
    """Convert the wire precision to a message."""
    return _PRECISIONS_OUT[precision]
