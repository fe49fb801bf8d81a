"""Between the wire's words and the core's; the only module that knows both."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message

from edl.core.image_build import BuildLogLine, BuildStatus, BuiltImage
from edl.core.job_status import (
    Failure,
    JobEvent,
    JobState,
    JobStatus,
    ParameterServerStatus,
    WorkerStatus,
)
from edl.core.mounts import BindMount
from edl.core.options import Verb
from edl.core.problem import Problem
from edl.core.submission import HOST, Submission
from edl_proto.errors import EdlError
from edl_proto.v1 import builder_pb2, error_pb2, job_pb2

WORKER_CRASHES = 3
"""In a row without progress: a crash loop."""

WORKER_GRACE_S = 10.0
"""From SIGTERM to SIGKILL: one minibatch and a return call."""

_TYPES: Mapping[Verb, job_pb2.JobType.ValueType] = {
    Verb.TRAIN: job_pb2.TRAIN,
    Verb.EVALUATE: job_pb2.EVALUATE,
    Verb.PREDICT: job_pb2.PREDICT,
}
_VERBS = {value: verb for verb, value in _TYPES.items()}
_UPDATES: Mapping[str, job_pb2.UpdateMode.ValueType] = {
    "sync": job_pb2.SYNC,
    "async": job_pb2.ASYNC,
    "bounded": job_pb2.BOUNDED,
}
_STATES = {
    job_pb2.STARTING: JobState.STARTING,
    job_pb2.RUNNING: JobState.RUNNING,
    job_pb2.FINISHING: JobState.FINISHING,
    job_pb2.STOPPING: JobState.STOPPING,
    job_pb2.SUCCEEDED: JobState.SUCCEEDED,
    job_pb2.FAILED: JobState.FAILED,
    job_pb2.CANCELLED: JobState.CANCELLED,
}


IMAGE_ZOO = "/model_zoo"
"""Where an image has its model zoo."""


def encode_spec(
    job: Submission, job_dir: str, submitted_at: str, binds: Sequence[BindMount] = ()
) -> job_pb2.JobSpec:
    """The message that a master is started with.

    Args:
        submitted_at: RFC 3339.
        binds: what its containers see of this machine.
    """
    spec = job_pb2.JobSpec(
        name=job.name,
        type=_TYPES[job.verb],
        model=job_pb2.ModelSpec(
            model_zoo=IMAGE_ZOO if job.in_containers and job.model_zoo else job.model_zoo,
            model_def=job.model_def,
            params=job.params,
            input_fn=job.input_fn,
            dataset_fn=job.dataset_fn,
            loss=job.loss,
            optimizer=job.optimizer,
            eval_metrics_fn=job.eval_metrics_fn,
            feature_columns=job.feature_columns,
            label_columns=job.label_columns,
        ),
        data=",".join(job.data),
        validation_data=",".join(job.validation_data),
        output=job.output,
        trained_model=job.trained_model,
        minibatch_size=job.minibatch_size,
        records_per_task=job.records_per_task,
        workers=job_pb2.WorkersSpec(min=job.num_workers.min, max=job.num_workers.max),
        failures=job_pb2.FailureSpec(
            task_attempts=job.task_attempts,
            allow_dead_letters=job.allow_dead_letters,
            worker_crashes=WORKER_CRASHES,
        ),
        serving=job_pb2.ServingSpec(
            host=HOST, port=0, dashboard_port=job.dashboard_port, keep_page_s=job.keep_page
        ),
        data_format=job.data_format,
        job_dir=job_dir,
        submitted_at=submitted_at,
        worker_grace_s=WORKER_GRACE_S,
        tensorboard_dir=job.tensorboard_dir,
        platform=job.platform,
        image=job.image,
    )
    if job.in_containers:
        spec.containers.CopyFrom(
            job_pb2.ContainersSpec(
                engine=job.engine,
                user=f"{os.getuid()}:{os.getgid()}",
                mounts=[
                    job_pb2.Mount(
                        path=bind.path, writable=bind.writable, for_workers=bind.for_workers
                    )
                    for bind in binds
                ],
                model_zoo=job.model_zoo,
            )
        )
    if job.verb is Verb.TRAIN:
        spec.training.CopyFrom(
            job_pb2.TrainingSpec(
                num_epochs=job.num_epochs,
                update=_UPDATES[job.update],
                grads_to_wait=job.grads_to_wait,
                max_staleness=job.max_staleness,
                overlap=job.overlap,
                local_steps=job.local_steps,
                wire_precision=job_pb2.WirePrecision.Value(job.wire_precision.upper()),
                gradient_reduction=job.gradient_reduction,
                evaluation_steps=job.evaluation_steps,
                embedding_threshold=job.embedding_threshold,
                parameter_servers=job.parameter_servers,
                seed=job.seed,
                shuffle=job.shuffle,
                init_from=job.init_from,
                checkpoint_dir=job.checkpoint_dir,
                checkpoint_steps=job.checkpoint_steps,
                keep_checkpoints=job.keep_checkpoints,
            )
        )
    return spec


def to_json(message: Message) -> str:
    """A message as protobuf JSON with the names of the .proto files."""
    return json_format.MessageToJson(message, preserving_proto_field_name=True, indent=2) + "\n"


def to_dict(message: Message) -> dict[str, Any]:
    """All fields of a message as plain values, for programs to read.

    Unlike protobuf JSON: 64-bit numbers are numbers, and NaN is None.
    """
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


def _field(message: Message, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return {str(key): _plain(item, None) for key, item in sorted(value.items())}
    if field.is_repeated:
        return [_plain(item, field) for item in value]
    if field.message_type is not None and not message.HasField(field.name):
        return None
    return _plain(value, field)


def _plain(value: Any, field: Any) -> Any:
    if isinstance(value, Message):
        return to_dict(value)
    if field is not None and field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known else value
    return None if isinstance(value, float) and math.isnan(value) else value


def differences(one: job_pb2.JobSpec, other: job_pb2.JobSpec) -> list[str]:
    """Dotted names of what two submissions differ in, the time of submitting aside.

    Nor does the image count: it is built for the one that is started.
    """
    left, right = _flat(to_dict(one)), _flat(to_dict(other))
    ignored = {"submitted_at", "job_dir", "image"}
    return sorted(
        name for name in (left.keys() | right.keys()) - ignored if left.get(name) != right.get(name)
    )


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat


def decode_verb(kind: job_pb2.JobType.ValueType) -> Verb:
    return _VERBS.get(kind, Verb.TRAIN)


def decode_status(message: job_pb2.JobStatus) -> JobStatus:
    progress = message.progress
    has_error = message.HasField("error") and message.error.code
    return JobStatus(
        job=message.name,
        verb=decode_verb(message.type),
        state=_STATES.get(message.state, JobState.STARTING),
        records_done=progress.records_done,
        records_total=progress.records_total,
        epoch=progress.epoch,
        num_epochs=progress.num_epochs,
        steps=progress.steps,
        version=progress.parameter_version,
        records_per_s=progress.records_per_s,
        eta_s=progress.eta_s,
        loss=progress.loss,
        metrics=dict(message.metrics),
        workers=tuple(
            WorkerStatus(
                id=worker.id,
                state=worker.state,
                host=worker.host,
                pid=worker.pid,
                task=worker.task,
                records=worker.records,
                steps=worker.steps,
                records_per_s=worker.records_per_s,
                restarts=worker.restarts,
                last_exit=worker.last_exit,
                heartbeat_age_s=worker.heartbeat_age_s,
            )
            for worker in message.workers
        ),
        failure=decode_failure(message.error) if has_error else None,
        seconds=message.seconds,
        started_at=message.started_at,
        finished_at=message.finished_at,
        dashboard_url=message.dashboard_url,
        output=message.output,
        workers_min=message.workers_wanted.min,
        workers_max=message.workers_wanted.max,
        records_trained=message.records_trained,
        records_replayed=message.records_replayed,
        predictions=message.predictions,
        preemptions=message.preemptions,
        worker_failures=message.worker_failures,
        dead_letters=tuple(f"{dead.task}: {dead.records}" for dead in message.dead_letters),
        goodput=progress.goodput,
        lost_s=dict(progress.lost_s),
        pace_per_s=progress.pace_per_s,
        servers=tuple(
            ParameterServerStatus(server.id, server.state, server.restarts)
            for server in message.servers
        ),
        table_rows=dict(message.embedding_rows),
    )


_PHASES = {
    builder_pb2.QUEUED: "queued",
    builder_pb2.RECEIVING: "receiving",
    builder_pb2.FETCHING: "fetching",
    builder_pb2.RESOLVING: "resolving",
    builder_pb2.BUILDING: "building",
    builder_pb2.PUSHING: "pushing",
    builder_pb2.DONE: "done",
    builder_pb2.BUILD_FAILED: "failed",
    builder_pb2.BUILD_CANCELLED: "cancelled",
}


def decode_build_news(message: builder_pb2.BuildProgress) -> BuildStatus | BuildLogLine:
    """What a builder streams."""
    if message.WhichOneof("news") == "line":
        return BuildLogLine(message.line.number, message.line.text)
    status = message.status
    result = status.result
    return BuildStatus(
        id=status.id,
        phase=_PHASES.get(status.phase, "queued"),
        position=status.queue_position,
        waiting=status.waiting,
        image=BuiltImage(
            name=result.image,
            build=status.id,
            key=result.key,
            nbytes=result.nbytes,
            seconds=result.seconds,
            layers=result.layers,
            cached_layers=result.cached_layers,
            reused=result.reused,
        )
        if status.HasField("result")
        else None,
        failure=decode_failure(status.error) if status.HasField("error") else None,
    )


def decode_event(message: job_pb2.Event) -> JobEvent:
    return JobEvent(
        number=message.number,
        at=message.at,
        at_s=message.at_s,
        kind=message.kind,
        severity=message.severity,
        message=message.message,
        facts=dict(message.facts),
    )


def decode_failure(message: error_pb2.Error) -> Failure:
    return Failure(
        code=code_name(message.code),
        what=message.what,
        where=message.where,
        remedy=message.remedy,
        detail=message.detail,
    )


def code_name(code: error_pb2.ErrorCode.ValueType) -> str:
    try:
        return error_pb2.ErrorCode.Name(code)
    except ValueError:  # from a newer edl
        return f"CODE_{code}"


def failure_of(error: EdlError) -> Failure:
    return decode_failure(error.to_proto())


def error_of(failure: Failure | Problem) -> EdlError:
    """The exception that users see."""
    try:
        code = error_pb2.ErrorCode.Value(failure.code)
    except ValueError:
        code = error_pb2.INTERNAL
    return EdlError(
        code,
        failure.what,
        where=failure.where,
        remedy=failure.remedy,
        detail=failure.detail if isinstance(failure, Failure) else "",
    )
