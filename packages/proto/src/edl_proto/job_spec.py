"""Which fields of a ``JobSpec`` must be set.

The client resolves every default. Readers of a specification check it with this module, and have
no defaults of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2

_FIELDS_OF_EVERY_JOB = (
    "name",
    "type",
    "data",
    "minibatch_size",
    "workers.max",
    "failures.task_attempts",
    "failures.worker_crashes",
    "serving.host",
    "serving.metrics_auth",
    "worker_grace_s",
    "snapshot_interval_s",
    "tensorboard_dir",
    "platform",
)
_BY_TYPE: dict[job_pb2.JobType.ValueType, tuple[str, ...]] = {
    job_pb2.TRAIN: (
        "model.model_zoo",
        "model.model_def",
        "training.num_epochs",
        "training.update",
        "training.local_steps",
        "training.keep_checkpoints",
    ),
    job_pb2.EVALUATE: ("trained_model",),
    job_pb2.PREDICT: ("trained_model", "output", "prediction.format"),
}
_BY_UPDATE: dict[job_pb2.UpdateMode.ValueType, tuple[str, ...]] = {
    job_pb2.SYNC: ("training.grads_to_wait",),
    job_pb2.BOUNDED: ("training.max_staleness",),
}


def required_fields(spec: job_pb2.JobSpec) -> tuple[str, ...]:
    """Return the paths of the fields that such a job must set, such as ``training.num_epochs``."""
    by_update = _BY_UPDATE.get(spec.training.update, ()) if spec.type == job_pb2.TRAIN else ()
    return (*_FIELDS_OF_EVERY_JOB, *_BY_TYPE.get(spec.type, ()), *by_update)


def check_complete(spec: job_pb2.JobSpec) -> None:
    """Check that every field is set that a job of this type needs.

    Raises:
        EdlError: USAGE, naming all fields that are missing, zero or empty.
    """
    require(spec, required_fields(spec))


def require(spec: job_pb2.JobSpec, paths: Iterable[str]) -> None:
    """Check that fields are set, given by paths such as ``training.num_epochs``.

    Raises:
        EdlError: USAGE, naming all of them that are missing, zero or empty.
    """
    missing = [path for path in paths if not _is_set(spec, path.split("."))]
    if missing:
        raise EdlError(
            ErrorCode.USAGE,
            f"the job's specification is incomplete: {', '.join(missing)}",
            where="spec.json",
            remedy="Submit the job with edl, or set these fields.",
        )


def _is_set(message: Any, path: Iterable[str]) -> bool:
    *parents, name = path
    for parent in parents:
        message = getattr(message, parent)
    field = message.DESCRIPTOR.fields_by_name[name]
    return message.HasField(name) if field.has_presence else bool(getattr(message, name))
