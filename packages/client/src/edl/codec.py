"""Translation between protobuf messages and the types of the core."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message

from edl.core.job_status import (
    Failure,
    JobEvent,
    JobState,
    JobStatus,
    ParameterServerStatus,
    WorkerStatus,
)
from edl.core.options import Verb
from edl.core.problem import Problem
from edl.core.timeline import TimelineSpan
from edl_proto import fields
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import error_pb2, job_pb2
from edl_runtime.json_texts import parse_message, parse_object

JOB_TYPES: Mapping[Verb, job_pb2.JobType.ValueType] = {
    Verb.TRAIN: job_pb2.TRAIN,
    Verb.EVALUATE: job_pb2.EVALUATE,
    Verb.PREDICT: job_pb2.PREDICT,
}
_VERBS = {value: verb for verb, value in JOB_TYPES.items()}
_STATES = {
    job_pb2.STARTING: JobState.STARTING,
    job_pb2.RUNNING: JobState.RUNNING,
    job_pb2.FINISHING: JobState.FINISHING,
    job_pb2.STOPPING: JobState.STOPPING,
    job_pb2.SUCCEEDED: JobState.SUCCEEDED,
    job_pb2.FAILED: JobState.FAILED,
    job_pb2.CANCELLED: JobState.CANCELLED,
}


def to_json(message: Message) -> str:
    """Return a message as protobuf JSON with the names of the .proto files."""
    return json_format.MessageToJson(message, preserving_proto_field_name=True, indent=2) + "\n"


def to_dict(message: Message) -> dict[str, Any]:
    """Return all fields of a message as plain values, for programs to read.

    Unlike protobuf JSON: 64-bit numbers are numbers, and NaN and what is absent are None.
    """
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


def _field(message: Message, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return {str(key): _plain(item, None) for key, item in sorted(value.items())}
    if field.is_repeated:
        return [_plain(item, field) for item in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _plain(value, field)


def _plain(value: Any, field: Any) -> Any:
    if isinstance(value, Message):
        return to_dict(value)
    if field is not None and field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known else value
    return None if isinstance(value, float) and math.isnan(value) else value


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Dotted names of what two submissions differ in, the time of submitting aside.

    Nor does the image count: it is built for the one that is started.
    """
    left, right = _flat(one), _flat(other)
    ignored = {"submitted_at", "job_dir", "image"}
    ignored |= {f"model.code.{name}" for name in ("sha256", "folder", "copies", "change")}
    return sorted(
        name.removeprefix("model.code.files.")
        for name in (left.keys() | right.keys()) - ignored
        if left.get(name) != right.get(name)
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
    """Return the verb that starts jobs of this type; ``train`` for types of a newer edl."""
    return _VERBS.get(kind, Verb.TRAIN)


def _rate_of(message: job_pb2.JobStatus) -> float | None:
    """Return the learning rate that was set last; None: the optimizer's own."""
    if message.HasField("learning_rate"):
        return message.learning_rate
    submitted = message.settings.get("model.learning_rate")
    return None if submitted is None else float(submitted)


def decode_status(message: job_pb2.JobStatus) -> JobStatus:
    """Decode a job's status as its master or its ``status.json`` gives it."""
    progress, wanted = message.progress, message.workers_wanted
    has_error = message.HasField("error") and message.error.code
    return fields.decode(
        JobStatus,
        message,
        progress,
        job=message.name,
        code=message.settings.get("model.code", ""),
        verb=decode_verb(message.type),
        state=_STATES.get(message.state, JobState.STARTING),
        version=progress.parameter_version,
        # A job whose master never ran has no progress, and 0 is no loss of its model.
        loss=progress.loss if message.HasField("progress") else math.nan,
        workers=tuple(fields.decode(WorkerStatus, worker) for worker in message.workers),
        failure=decode_failure(message.error) if has_error else None,
        learning_rate=_rate_of(message),
        strategy=message.settings.get("training.strategy", ""),
        workers_min=wanted.min,
        workers_max=wanted.max,
        dead_tasks=sum(counts.dead for counts in message.tasks.values()),
        dead_letters=tuple(map(_dead_letter, message.dead_letters)),
        servers=tuple(fields.decode(ParameterServerStatus, each) for each in message.servers),
        table_rows=dict(message.embedding_rows),
        curves={
            curve.name: tuple((point.step, point.value) for point in curve.points)
            for curve in message.curves
        },
        pending="",
    )


def _dead_letter(dead: job_pb2.DeadLetter) -> str:
    trained = f", {dead.records_trained} of them in the model" if dead.records_trained else ""
    return f"{dead.task}: {dead.records}{trained}" if dead.records else dead.task


def decode_event(message: job_pb2.Event) -> JobEvent:
    """Decode one event of a job's event log."""
    return fields.decode(JobEvent, message)


def decode_events(lines: Iterable[str], after: int) -> list[JobEvent]:
    """Decode lines of JSON into events numbered above ``after``; leave out damaged lines."""
    found = []
    for line in lines:
        message = job_pb2.Event()
        try:
            parse_message(line, message)
        except json_format.ParseError:
            continue
        if message.number > after:
            found.append(decode_event(message))
    return found


def decode_timeline(lines: Iterable[str | bytes]) -> list[TimelineSpan]:
    """Return spans in the order of their beginnings; damaged lines are left out.

    Args:
        lines: as ``edl_runtime.local.job_directory.TIMELINE`` describes them.
    """
    spans = [span for line in lines if (span := _span(line)) is not None]
    return sorted(spans, key=lambda span: span.at)


def _span(line: str | bytes) -> TimelineSpan | None:
    try:
        found = parse_object(line)
        span = TimelineSpan(
            at=float(found["at"]),
            seconds=float(found["seconds"]),
            worker=int(found["worker"]),
            task=str(found.get("task", "")),
            outcome=str(found.get("outcome", "")),
            phases={str(name): float(spent) for name, spent in found.get("phases", {}).items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None
    times = (span.at, span.seconds, *span.phases.values())
    return span if all(0 <= each < math.inf for each in times) else None


def decode_failure(message: error_pb2.Error) -> Failure:
    """Decode an error, with the name of its code instead of the number."""
    return fields.decode(Failure, message, code=code_name(message.code))


def code_name(code: ErrorCode.ValueType) -> str:
    """Return the name of an error code; ``CODE_<number>`` for codes of a newer edl."""
    try:
        return ErrorCode.Name(code)
    except ValueError:  # from a newer edl
        return f"CODE_{code}"


def failure_of(error: EdlError) -> Failure:
    """Return an exception as plain data."""
    return decode_failure(error.to_proto())


def error_of(failure: Failure | Problem) -> EdlError:
    """Return the exception that users see."""
    try:
        code = ErrorCode.Value(failure.code)
    except ValueError:
        code = ErrorCode.INTERNAL
    return EdlError(
        code,
        failure.what,
        where=failure.where,
        remedy=failure.remedy,
        detail=failure.detail if isinstance(failure, Failure) else "",
    )
