"""The settings of one master, read from the specification of its job.

The specification is complete: the client has resolved every default. What the core needs becomes
``JobSettings``; everything else is in ``Config``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from edl_master.adapters.part_files import FORMATS, OutputFormat
from edl_master.codec import JOB_TYPES
from edl_master.config.gpus import assign_gpus
from edl_master.core.gpus import GpuAssignment
from edl_master.core.mixing import Mixing
from edl_master.core.parameters.modes import Async, Bounded, Reduction, Replicated, Sync, UpdateMode
from edl_master.core.parameters.table_spec import TableSpec
from edl_master.core.settings import JobSettings, JobType, choose_records_per_task, timings_for
from edl_master.core.windows import WindowRule
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.identity.names import Role
from edl_proto.job_spec import check_complete
from edl_proto.v1 import job_pb2
from edl_runtime.identity.folder import IdentityFolder
from edl_runtime.local import job_directory
from recordio.storage.stores import is_uri

LOOPBACK = "127.0.0.1"
"""Address of the page of a job that is over; no other machine can reach it."""

_UPDATES = (
    job_pb2.ASYNC,
    job_pb2.BOUNDED,
    job_pb2.SYNC,
    job_pb2.REPLICATED,
    job_pb2.AUTO,
)

MAX_PARAMETER_SERVERS = 256
"""Of one job; a machine has fewer cores than that."""


@dataclass(frozen=True, slots=True)
class Intervals:
    """How often the master polls and writes. All in seconds."""

    tick_s: float = 0.25
    """Time between two checks of the clock: deadlines are in seconds, and may be a quarter late."""

    status_every_s: float = 1.0
    """Time between two versions of status.json, for users who read it or the page."""

    flush_every_s: float = 0.25
    """Age at which an event is written to events.jsonl."""

    acknowledge_s: float = 2.0
    """How long the master of a finished job waits for its client to read the result."""

    workers_leave_s: float = 3.0
    """How long workers may take to leave after the end of the job, before they are killed."""


@dataclass(frozen=True, slots=True)
class Config:
    """Settings of everything around the core.

    Attributes:
        spec: the complete specification; workers receive it unchanged.
        job_dir: directory of the job's state, logs and events.
        type: type of the job.
        workers_min: smallest number of workers that run at a time.
        workers_max: largest number of workers that run at a time.
        parameter_servers: number of parameter server processes; 0: the master holds the parameters.
        host: address to listen on.
        output: absolute path or URI of the result; empty: no result is written.
        checkpoint_dir: local directory of checkpoints; None: no checkpoints.
        checkpoint_store: URI that checkpoints are copied to from there; empty: not copied.
        keep_checkpoints: number of checkpoints to keep.
        tensorboard_dir: directory of TensorBoard event files.
        worker_grace_s: seconds from SIGTERM to SIGKILL of a worker.
        python: interpreter of workers and parameter servers.
        environ: environment of worker processes.
        gpus: of this machine, for its workers; none on a cluster, which assigns them itself.
        intervals: how often the master polls and writes.
    """

    spec: job_pb2.JobSpec
    job_dir: Path
    type: JobType
    workers_min: int
    workers_max: int
    parameter_servers: int
    host: str
    output: str
    checkpoint_dir: Path | None
    checkpoint_store: str
    keep_checkpoints: int
    tensorboard_dir: Path
    worker_grace_s: float
    python: str
    environ: Mapping[str, str]
    gpus: GpuAssignment
    intervals: Intervals

    @property
    def identities(self) -> IdentityFolder | None:
        """Keys and certificates of the job's processes; None if the job is not secured."""
        path = self.job_dir / job_directory.IDENTITY
        return IdentityFolder(path, self.spec.name) if path.is_dir() else None

    def identity_arguments(self, role: Role, number: int) -> list[str]:
        """Return the arguments that tell a new process of the job where its identity is.

        Raises:
            EdlError: SYSTEM; it cannot be signed.
        """
        identities = self.identities
        return [] if identities is None else ["--identity", str(identities.provide(role, number))]

    @property
    def open_metrics(self) -> bool:
        """Whether anyone who reaches the page's port gets the metrics."""
        return self.spec.serving.metrics_auth == "none"

    @property
    def model_of(self) -> str:
        """The job that the trained model belongs to: this one, or the one that it exports."""
        return self.spec.export.job or self.spec.name

    @property
    def reduction(self) -> Reduction | None:
        """How gradients are combined, if the user chose that; otherwise as the loss reduces."""
        chosen = self.spec.training.gradient_reduction
        return Reduction(chosen) if chosen else None

    @property
    def model_decides(self) -> bool:
        """Whether it depends on the model if workers hold all values."""
        return self.spec.training.update == job_pb2.AUTO

    @property
    def is_stream(self) -> bool:
        """Whether the data keeps arriving."""
        return self.type is JobType.TRAIN and self.spec.training.HasField("window")

    @property
    def may_replicate(self) -> bool:
        """Whether workers hold all values, if the model has no embedding tables."""
        return self.model_decides or self.spec.training.update == job_pb2.REPLICATED

    def continue_in(self, *, replicated: bool) -> Config:
        """Return the settings of a job that trains as it did before, whatever its model is."""
        if not self.model_decides:
            return self
        spec = job_pb2.JobSpec()
        spec.CopyFrom(self.spec)
        spec.training.update = job_pb2.REPLICATED if replicated else job_pb2.ASYNC
        return replace(self, spec=spec)

    def update_mode(self, reduction: Reduction, tables: Sequence[TableSpec] = ()) -> UpdateMode:
        """Return how gradients become updates.

        Args:
            reduction: how the loss reduces a minibatch.
            tables: embedding tables of the model.
        """
        training = self.spec.training
        match training.update:
            case job_pb2.SYNC:
                return Sync(training.grads_to_wait, reduction)
            case job_pb2.REPLICATED:
                return Replicated()
            case job_pb2.AUTO if not tables:
                return Replicated()
            case job_pb2.BOUNDED:
                return Bounded(training.max_staleness)
            case _:
                return Async(max(1, training.local_steps))

    def output_format(self, *, typed: bool) -> OutputFormat:
        """Return how predictions are written.

        Args:
            typed: whether kept texts that are all numbers become numbers.
        """
        chosen = self.spec.prediction
        return OutputFormat(
            chosen.format,
            one_file=self.output.endswith(f".{chosen.format}"),
            keep=tuple(chosen.keep),
            typed=typed,
        )

    def job_settings(
        self, records: int, choose_mixing: Callable[[int], Mixing] | None = None
    ) -> JobSettings:
        """Return the settings of the core, for data of ``records`` records.

        Args:
            choose_mixing: says how finely shuffled tasks of some length are mixed.

        Raises:
            EdlError: USAGE; a number is out of range.
        """
        spec, training = self.spec, self.spec.training
        records_per_task = spec.records_per_task or choose_records_per_task(
            records, spec.minibatch_size, self.workers_max, is_stream=self.is_stream
        )
        shuffles = self.type is JobType.TRAIN and training.shuffle
        try:
            return JobSettings(
                type=self.type,
                records_per_task=records_per_task,
                minibatch_size=spec.minibatch_size,
                num_epochs=training.num_epochs if self.type is JobType.TRAIN else 1,
                epoch_barrier=training.update == job_pb2.SYNC,
                replicated=training.update == job_pb2.REPLICATED,
                evaluation_steps=training.evaluation_steps,
                checkpoint_steps=training.checkpoint_steps if self.checkpoint_dir else 0,
                snapshot_interval_s=0.0 if spec.export.job else spec.snapshot_interval_s,
                export=bool(self.output),
                export_only=bool(spec.export.job),
                seed=training.seed,
                shuffle=training.shuffle,
                mixing=choose_mixing(records_per_task) if shuffles and choose_mixing else None,
                min_workers=self.workers_min,
                max_workers=self.workers_max,
                task_attempts=spec.failures.task_attempts,
                allow_dead_letters=spec.failures.allow_dead_letters,
                allow_gaps=spec.failures.allow_gaps,
                worker_crashes=spec.failures.worker_crashes,
                code=spec.model.code.sha256,
                window=WindowRule(training.window.records, training.window.seconds)
                if self.is_stream
                else None,
                timings=timings_for(
                    self.workers_max, self.worker_grace_s, spec.failures.stall_timeout_s
                ),
            )
        except ValueError as error:
            raise _usage(str(error)) from error


def read(
    spec: job_pb2.JobSpec,
    job_dir: Path,
    environ: Mapping[str, str] = os.environ,
    intervals: Intervals = Intervals(),
) -> Config:
    """Read the settings of a job.

    Args:
        spec: the specification that the client wrote.
        job_dir: directory of the job, as the master's command line names it.
        environ: ``EDL_PYTHON`` is the interpreter of the processes that the master starts; the rest
            is their environment.
        intervals: shorter ones for tests.

    Raises:
        EdlError: USAGE; the specification is incomplete, or a field is out of range.
    """
    check_complete(spec)
    _check_ranges(spec)
    checkpoints = spec.training.checkpoint_dir
    stored = is_uri(checkpoints)
    checkpoint_dir = None
    if stored:
        checkpoint_dir = job_dir / job_directory.CHECKPOINTS
    elif checkpoints:
        checkpoint_dir = _local(checkpoints, "--checkpoint-dir")
    return Config(
        spec=spec,
        job_dir=job_dir,
        type=JOB_TYPES[spec.type],
        workers_min=spec.workers.min,
        workers_max=spec.workers.max,
        parameter_servers=spec.training.parameter_servers,
        host=spec.serving.host,
        output=_place(spec.output) if spec.output else "",
        checkpoint_dir=checkpoint_dir,
        checkpoint_store=checkpoints if stored else "",
        keep_checkpoints=spec.training.keep_checkpoints,
        tensorboard_dir=_local(spec.tensorboard_dir, "--tensorboard-dir"),
        worker_grace_s=spec.worker_grace_s,
        python=environ.get("EDL_PYTHON") or sys.executable,
        environ=environ,
        gpus=assign_gpus(spec, environ),
        intervals=intervals,
    )


def _check_ranges(spec: job_pb2.JobSpec) -> None:
    """Check what the fields of a complete specification may hold."""
    workers = spec.workers
    if spec.type not in JOB_TYPES:
        raise _usage(f"the job type must be TRAIN, EVALUATE or PREDICT, not {spec.type}")
    if workers.min > workers.max:
        raise _usage(f"workers.min, {workers.min}, exceeds workers.max, {workers.max}")
    if spec.serving.metrics_auth not in ("token", "none"):
        raise _usage(f"metrics_auth must be token or none, not {spec.serving.metrics_auth!r}")
    if spec.gpus not in ("", "each", "shared", "none"):
        raise _usage(f"gpus must be each, shared or none, not {spec.gpus!r}")
    if spec.prediction.format not in ("", *FORMATS):
        raise _usage(f"unknown output format {spec.prediction.format!r}")
    _check_training(spec.training, is_given=spec.type == job_pb2.TRAIN)


def _check_training(training: job_pb2.TrainingSpec, *, is_given: bool) -> None:
    if is_given and training.update not in _UPDATES:
        raise _usage(f"unknown update mode {training.update}")
    if training.update in (job_pb2.REPLICATED, job_pb2.AUTO) and training.parameter_servers:
        raise _usage("parameter servers take no part in replicated training")
    if training.gradient_reduction not in ("", *Reduction):
        raise _usage(
            f"the gradient reduction must be mean or sum, not {training.gradient_reduction!r}"
        )
    if training.local_steps > 1 and training.update != job_pb2.ASYNC:
        raise _usage("local steps need --update async")
    if training.overlap and (training.update == job_pb2.SYNC or training.local_steps > 1):
        raise _usage("--overlap needs --update async or bounded, and --local-steps 1")
    if training.wire_precision not in job_pb2.WirePrecision.values():
        raise _usage(f"unknown wire precision {training.wire_precision}")
    if training.parameter_servers > MAX_PARAMETER_SERVERS:
        raise _usage(f"a job has at most {MAX_PARAMETER_SERVERS} parameter servers")


def _place(place: str) -> str:
    """Make a path absolute, and leave the URI of a store unchanged."""
    path = place.removeprefix("file://")
    return path if "://" in path else str(Path(path).absolute())


def _local(place: str, option: str) -> Path:
    """Return an absolute path on this machine; refuse a URI before it names an odd directory."""
    path = place.removeprefix("file://")
    if "://" in path:
        raise _usage(f"{option} must be a path on this machine, not {place}")
    return Path(path).absolute()


def _usage(what: str) -> EdlError:
    return EdlError(
        ErrorCode.USAGE,
        what,
        where=job_directory.SPEC,
        remedy="Submit the job again with other options.",
    )
