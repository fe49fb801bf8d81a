"""Encodes a submission as the message that a master starts with.

This module sets every field of a ``JobSpec``: master and worker check them, and have no defaults.
"""

from __future__ import annotations

import os
from typing import Any

from edl.codec import JOB_TYPES
from edl.core import model_code
from edl.core.options import options_of
from edl.core.options.value_types import StepRange, WindowLength, WorkerRange
from edl.core.submission import HOST, Submission
from edl_proto.v1 import job_pb2
from edl_runtime.local import job_directory

WORKER_CRASHES = 3
"""In a row without progress of the job: a fourth attempt would not be different."""

WORKER_GRACE_S = 10.0
"""From SIGTERM to SIGKILL: enough for one minibatch and a call that returns the task."""


def encode_spec(job: Submission, job_dir: str, submitted_at: str) -> job_pb2.JobSpec:
    """Return the specification of a job; a backend adds what only its own jobs need.

    Args:
        job_dir: absolute path; empty if the job is not started.
        submitted_at: RFC 3339.
    """
    spec = job_pb2.JobSpec(
        type=JOB_TYPES[job.verb],
        worker_grace_s=WORKER_GRACE_S,
        failures=job_pb2.FailureSpec(worker_crashes=WORKER_CRASHES),
        # Port 0 is any free port; the master publishes the one that it listens on.
        serving=job_pb2.ServingSpec(host=HOST, port=0),
    )
    for option in options_of(job.verb):
        value = getattr(job, option.name)
        if option.spec and value is not None:
            _set(spec, option.spec, value)
    if job.code:
        spec.model.code.sha256 = model_code.digest(job.code)
        spec.model.code.files.update(job.code)
        spec.model.code.folder = "" if job.git_source else job.model_zoo
    chosen = spec.tensorboard_dir
    start_fields(spec, spec.name, job_dir, submitted_at)
    if chosen:
        spec.tensorboard_dir = chosen
    return spec


def start_fields(spec: job_pb2.JobSpec, name: str, job_dir: str, submitted_at: str) -> None:
    """Set what belongs to one start of a job, and not to what it does."""
    spec.name, spec.job_dir, spec.submitted_at = name, job_dir, submitted_at
    spec.tensorboard_dir = os.path.join(job_dir, job_directory.TENSORBOARD) if job_dir else ""


def export_fields(
    spec: job_pb2.JobSpec, job: str, snapshots: str, output: str, overwrite: bool
) -> None:
    """Make the specification of a training job that of one that exports its model.

    Args:
        job: whose model it is.
        snapshots: the directory of its snapshots, as the new job sees it.
        output: empty: that of the first job.
        overwrite: replace a model of the first job there.
    """
    if not spec.export.job:
        spec.export.job, spec.export.snapshots = job, snapshots
    spec.export.overwrite = overwrite
    spec.output = output or spec.output
    spec.workers.CopyFrom(job_pb2.WorkersSpec(min=1, max=1))
    spec.training.parameter_servers = 0
    spec.training.init_from = ""
    del spec.validation_data[:]
    spec.serving.keep_page_s = 0


def _set(spec: job_pb2.JobSpec, path: str, value: object) -> None:
    """Set a field, given by its path such as ``training.num_epochs``, to an option's value."""
    message: Any = spec
    *parents, name = path.split(".")
    for parent in parents:
        message = getattr(message, parent)
    field = message.DESCRIPTOR.fields_by_name[name]
    if isinstance(value, WorkerRange):
        getattr(message, name).MergeFrom(job_pb2.WorkersSpec(min=value.min, max=value.max))
    elif isinstance(value, StepRange):
        getattr(message, name).MergeFrom(job_pb2.StepRange(first=value.first, last=value.last))
    elif isinstance(value, WindowLength):
        window = job_pb2.Window(records=value.records, seconds=value.seconds)
        getattr(message, name).MergeFrom(window)
    elif isinstance(value, tuple):
        getattr(message, name).extend(value)
    elif field.enum_type is not None:
        setattr(message, name, field.enum_type.values_by_name[str(value).upper()].number)
    else:
        setattr(message, name, value)
