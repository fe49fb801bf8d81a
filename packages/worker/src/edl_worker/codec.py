"""Messages of ``edl.v1`` to and from the worker's own types.

Only this module and ``transport`` know protobuf; everything above uses the types of ``core``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

from edl_proto import tensor
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.job_spec import check_complete, require
from edl_proto.v1 import job_pb2, model_pb2, parameters_pb2, task_pb2
from edl_worker.core.exchange import ParameterReply, PullRequest, PushReply, PushRequest, TableRows
from edl_worker.core.job import (
    JobDescription,
    JobType,
    ModelReference,
    TrainingSettings,
    WirePrecision,
)
from edl_worker.core.model_description import ModelDescription, TrainedModelDescription
from edl_worker.core.push_pipeline import PushOutcome
from edl_worker.core.registration import JobAdmission, Registration, ShardAddress
from edl_worker.core.tasks import (
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

M = TypeVar("M", bound=Message)

_JOB_TYPES = {job_pb2.JobType.Value(one.name): one for one in JobType}
_TASK_TYPES = {task_pb2.TaskType.Value(one.name): one for one in TaskType}
_PRECISIONS = {job_pb2.WirePrecision.Value(one.name): one for one in WirePrecision}


# --- jobs and models ---------------------------------------------------------------------------


def decode_job(spec: job_pb2.JobSpec) -> JobDescription:
    """The part of a job that concerns its workers."""
    training = spec.training
    return JobDescription(
        name=spec.name,
        # A description without a type is that of a training job.
        type=_JOB_TYPES.get(spec.type, JobType.TRAIN),
        model=decode_model_reference(spec.model),
        data=tuple(spec.data),
        data_format=spec.data_format,
        output=spec.output,
        trained_model=spec.trained_model,
        minibatch_size=spec.minibatch_size,
        training=TrainingSettings(
            seed=training.seed,
            sync=training.update == job_pb2.SYNC,
            overlap=training.overlap,
            local_steps=training.local_steps,
            precision=decode_precision(training.wire_precision),
            embedding_threshold=training.embedding_threshold,
            init_from=training.init_from,
        ),
        image=spec.image,
        grace_s=spec.worker_grace_s,
    )


def decode_registration(reply: task_pb2.RegisterReply) -> Registration:
    """The master's answer to a worker that registers.

    Raises:
        EdlError: USAGE, the job's specification is incomplete.
    """
    check_complete(reply.job)
    return Registration(decode_job(reply.job), reply.heartbeat_every_s)


def decode_admission(reply: task_pb2.ReadyReply) -> JobAdmission:
    """The admission of a worker to the job."""
    return JobAdmission(
        send_initial_values=reply.send_initial_values,
        layout_fingerprint=reply.layout_fingerprint,
        shards=tuple(ShardAddress(one.address, one.start, one.stop) for one in reply.servers),
    )


def parse_job(text: str) -> JobDescription:
    """A job from its JobSpec as JSON.

    Raises:
        ValueError: the text is not a JobSpec.
        EdlError: USAGE, it names data, and not how large a minibatch is.
    """
    spec = job_pb2.JobSpec()
    try:
        json_format.Parse(text, spec)
    except json_format.ParseError as error:
        raise ValueError(str(error)) from error
    if spec.data:
        require(spec, ["minibatch_size"])
    return decode_job(spec)


def decode_model_reference(spec: job_pb2.ModelSpec) -> ModelReference:
    """Where the model file is, and its parameters."""
    return ModelReference(**{name: getattr(spec, name) for name in ModelReference.__slots__})


def decode_precision(precision: job_pb2.WirePrecision.ValueType) -> WirePrecision:
    """The precision of numbers on the wire."""
    return _PRECISIONS[precision]


def encode_precision(precision: WirePrecision) -> job_pb2.WirePrecision.ValueType:
    """The precision of numbers on the wire, as a message."""
    return job_pb2.WirePrecision.Value(precision.name)


def encode_model(model: ModelDescription) -> task_pb2.ModelDescription:
    """What the master has to know of the model."""
    return task_pb2.ModelDescription(
        model_name=model.model_name,
        metric_names=model.metric_names,
        variables=[_copy(task_pb2.Variable, one) for one in model.variables],
        tables=[_copy(task_pb2.EmbeddingTable, one) for one in model.tables],
        reduction=model.reduction,
        optimizer_json=model.optimizer_json,
    )


def encode_trained_model(model: TrainedModelDescription) -> bytes:
    """The content of a ``trained_model.pb``."""
    return _copy(model_pb2.TrainedModel, model).SerializeToString()


def decode_trained_model(content: bytes) -> TrainedModelDescription:
    """The description in a ``trained_model.pb``.

    Raises:
        ValueError: the content is damaged.
    """
    try:
        message = model_pb2.TrainedModel.FromString(content)
    except DecodeError as error:
        raise ValueError(str(error)) from error
    fields = {name: getattr(message, name) for name in TrainedModelDescription.__slots__}
    fields.update(metrics=dict(message.metrics), versions=dict(message.versions))
    return TrainedModelDescription(**fields)


def _copy(message: type[M], source: Any) -> M:
    """A message whose fields have the names of the source's attributes."""
    return message(**{name: getattr(source, name) for name in source.__slots__})


# --- tasks -------------------------------------------------------------------------------------


def decode_lease_answer(reply: task_pb2.LeaseReply) -> LeaseAnswer:
    """The answer to a request for a task; raises as ``decode_lease``."""
    match reply.WhichOneof("answer"):
        case "lease":
            return decode_lease(reply.lease)
        case "leave":
            return Leave(reply.leave.reason)
        case _:
            return Wait(reply.wait.retry_in_s)


def decode_lease(lease: task_pb2.Lease) -> Lease:
    """A lease as the worker knows it.

    Raises:
        EdlError: INTERNAL, the type of the task is unknown.
    """
    records, export = lease.records, lease.export
    return Lease(
        task=_decode_key(lease.task),
        token=lease.token,
        records=RecordRange(
            uri=records.uri,
            format=records.format,
            start=records.start,
            stop=records.stop,
            block_first_record=records.block_first_record,
            block_offset=records.block_offset,
            columns=tuple(records.columns),
        ),
        skip_minibatches=lease.skip_minibatches,
        seed=lease.seed,
        frozen=lease.frozen,
        metric_states=tuple(map(_decode_metric_state, lease.metric_states)),
        part_path=lease.part_path,
        export=ExportInfo(
            parameter_version=export.parameter_version,
            records_trained=export.records_trained,
            epochs=export.epochs,
            metrics=dict(export.metrics),
        ),
    )


def _decode_key(key: task_pb2.TaskKey) -> TaskKey:
    if key.type not in _TASK_TYPES:
        raise EdlError(
            ErrorCode.INTERNAL,
            f"the master has leased a task of the unknown type {key.type}",
            remedy="Master and worker must be of one version of edl.",
        )
    return TaskKey(_TASK_TYPES[key.type], key.round, key.number)


def _decode_ref(ref: task_pb2.LeaseRef) -> LeaseRef:
    return LeaseRef(_decode_key(ref.task), ref.token)


def encode_ref(ref: LeaseRef) -> task_pb2.LeaseRef:
    """The task and token of a lease, as a message."""
    key = ref.task
    return task_pb2.LeaseRef(
        task=task_pb2.TaskKey(
            type=task_pb2.TaskType.Value(key.type.name), round=key.round, number=key.number
        ),
        token=ref.token,
    )


def encode_refs(refs: Iterable[LeaseRef]) -> list[task_pb2.LeaseRef]:
    """Tasks and tokens of leases, as messages."""
    return [encode_ref(ref) for ref in refs]


def encode_result(ref: LeaseRef, result: TaskResult) -> task_pb2.CompleteRequest:
    """The report of a completed task, without the fields that name worker and master."""
    return task_pb2.CompleteRequest(
        lease=encode_ref(ref),
        minibatches=result.minibatches,
        records=result.records,
        examples=result.examples,
        metric_states=[_encode_metric_state(state) for state in result.metric_states],
        metrics=result.metrics,
        seconds=result.seconds,
    )


def _decode_metric_state(state: task_pb2.MetricState) -> MetricState:
    return MetricState(state.name, tuple(tensor.decode(value) for value in state.variables))


def _encode_metric_state(state: MetricState) -> task_pb2.MetricState:
    variables = [tensor.encode(value) for value in state.variables]
    return task_pb2.MetricState(name=state.name, variables=variables)


def encode_phase(phase: WorkerPhase) -> task_pb2.WorkerPhase.ValueType:
    """What the worker is doing, as a message."""
    return task_pb2.WorkerPhase.Value(phase.name)


def decode_heartbeat(reply: task_pb2.HeartbeatReply) -> HeartbeatAnswer:
    """The master's answer to a heartbeat; raises as ``decode_lease``."""
    return HeartbeatAnswer(
        lost=tuple(map(_decode_ref, reply.lost)),
        leave_reason=reply.leave_reason if reply.leave else None,
        wants_stacks=reply.send_stacks,
    )


# --- parameters --------------------------------------------------------------------------------


def encode_table_rows(rows: Iterable[TableRows]) -> list[parameters_pb2.TableRows]:
    """How many rows of which embedding tables, as messages."""
    return [parameters_pb2.TableRows(table=one.table, count=one.count) for one in rows]


def encode_pull(request: PullRequest) -> parameters_pb2.PullHeader:
    """The header of a pull, without the fields that name worker and master."""
    return parameters_pb2.PullHeader(
        have_version=request.have_version,
        frozen=request.frozen,
        permit_for=None if request.permit_for is None else encode_ref(request.permit_for),
        rows=encode_table_rows(request.rows),
        precision=encode_precision(request.precision),
    )


def decode_pull(reply: parameters_pb2.PullReply) -> ParameterReply:
    """The header of the answer to a pull."""
    return ParameterReply(
        version=reply.version,
        nbytes=reply.nbytes,
        rows_nbytes=reply.rows_nbytes,
        precision=decode_precision(reply.precision),
        permit_granted=reply.permit_granted,
        initialized=reply.initialized,
    )


def encode_push(request: PushRequest) -> parameters_pb2.PushHeader:
    """The header of a push, without the fields that name worker and master."""
    header = parameters_pb2.PushHeader(
        claim=parameters_pb2.PushClaim(
            lease=encode_ref(request.lease),
            minibatch=request.minibatch,
            minibatches=request.minibatches,
            records=request.records,
            base_version=request.base_version,
        ),
        gradient=parameters_pb2.GradientHeader(
            nbytes=request.gradient_nbytes,
            state_nbytes=request.state_nbytes,
            rows=encode_table_rows(request.rows),
            precision=encode_precision(request.precision),
        ),
        step=parameters_pb2.StepReport(loss=request.loss, compute_s=request.compute_s),
    )
    if request.wants_values:
        header.next.SetInParent()
        header.next.rows.extend(encode_table_rows(request.next_rows))
        header.next.precision = encode_precision(request.reply_precision)
    return header


def decode_push(reply: parameters_pb2.PushReply) -> PushReply:
    """The header of the answer to a push."""
    return PushReply(
        outcome=PushOutcome[parameters_pb2.PushOutcome.Name(reply.outcome)],
        version=reply.version,
        nbytes=reply.nbytes,
        rows_nbytes=reply.rows_nbytes,
        precision=decode_precision(reply.precision),
        permit_granted=reply.permit_granted,
    )
