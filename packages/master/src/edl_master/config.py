"""A job as submitted, read into settings; every default has its unit and its reason here.

What the core needs becomes ``JobSettings``; the rest is ``Config``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edl_master.adapters.object_stores import is_store
from edl_master.codec import JOB_TYPES
from edl_master.core.parameters.modes import Async, Bounded, Reduction, Sync, UpdateMode
from edl_master.core.settings import JobSettings, JobType, choose_records_per_task, timings_for
from edl_proto.errors import EdlError
from edl_proto.local import job_directory
from edl_proto.v1 import error_pb2, job_pb2

MINIBATCH_SIZE = 32
"""Records. Keras's own default."""

NUM_EPOCHS = 1

WORKERS = 1
"""More than one is a decision about the machine, which is the user's."""

TASK_ATTEMPTS = 3
"""Twice is bad luck."""

WORKER_CRASHES = 3
"""In a row and without progress: the fourth would not be different."""

WORKER_GRACE_S = 10.0
"""Seconds from SIGTERM to SIGKILL: one minibatch and a call to return the rest."""

KEEP_CHECKPOINTS = 3
"""One to use, one if that is damaged, one to look back at."""

SNAPSHOT_EVERY_S = 5.0
"""What a killed master costs at most, unless writing takes long: see ``core.keeping``."""

HOST = "127.0.0.1"
"""Whoever can reach a master can stop its job: the outside has to be asked for."""


MOST_SERVERS = 256
"""Parameter servers of a job; a machine has fewer cores than that."""


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How often the master looks at what nobody tells it. All in seconds."""

    tick_s: float = 0.25
    """Deadlines are in seconds; a quarter more is not noticed."""

    status_every_s: float = 1.0
    """A person reads status.json or the page; a terminal shows one line per second."""

    flush_every_s: float = 0.25
    """How old an event may be before it is in events.jsonl."""

    acknowledge_s: float = 2.0
    """How long a finished job waits for its client to read the result: two of its looks."""

    workers_leave_s: float = 3.0
    """How long workers that were told to leave may take after the end, before they are killed."""


@dataclass(frozen=True, slots=True)
class Config:
    """Settings of everything around the core.

    Attributes:
        spec: what the user submitted; workers get it whole.
        job_dir: state, logs and events of this job.
        type: of the job.
        update: async, sync or bounded.
        workers_max: the most workers that may run at a time.
        output: where the result goes, an absolute path or a URI; empty: nowhere.
        parameter_servers: processes that hold the parameters; 0: the master does.
        checkpoint_dir: where they are written; None: no checkpoints.
        checkpoint_store: URI of the store that they are sent to from there; empty: none.
        tensorboard_dir: where event files go.
        python: interpreter of the workers.
        environ: their environment.
        rhythm: how often things are looked at.
    """

    spec: job_pb2.JobSpec
    job_dir: Path
    type: JobType
    update: job_pb2.UpdateMode.ValueType
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
    rhythm: Rhythm

    @property
    def sees_supervisor(self) -> bool:
        """Whether the job's supervisor is a process beside this one, not outside a container."""
        return self.spec.platform in ("", "processes")

    @property
    def reduction(self) -> Reduction | None:
        """How the loss reduces a minibatch, if the user has said so."""
        word = self.spec.training.gradient_reduction
        return Reduction(word) if word else None

    def update_mode(self, reduction: Reduction) -> UpdateMode:
        """How gradients become updates.

        A synchronous update is of everybody unless told otherwise; in bounded mode a worker
        may be overtaken once by each other one, twice where gradients overlap computing.
        """
        training = self.spec.training
        match self.update:
            case job_pb2.SYNC:
                return Sync(training.grads_to_wait or self.workers_max, reduction)
            case job_pb2.BOUNDED:
                if training.HasField("max_staleness"):
                    return Bounded(training.max_staleness)
                return Bounded(self.workers_max * (2 if training.overlap else 1))
            case _:
                return Async(local=training.local_steps > 1)

    def job_settings(self, records: int) -> JobSettings:
        """What the core needs, for data of so many records.

        Raises:
            EdlError: USAGE; a number makes no sense.
        """
        spec = self.spec
        minibatch_size = spec.minibatch_size or MINIBATCH_SIZE
        length = spec.records_per_task or choose_records_per_task(
            records, minibatch_size, self.workers_max
        )
        try:
            return JobSettings(
                type=self.type,
                records_per_task=length,
                minibatch_size=minibatch_size,
                num_epochs=spec.training.num_epochs or NUM_EPOCHS,
                epoch_barrier=self.update == job_pb2.SYNC,
                evaluation_steps=spec.training.evaluation_steps,
                checkpoint_steps=spec.training.checkpoint_steps if self.checkpoint_dir else 0,
                snapshot_every_s=SNAPSHOT_EVERY_S,
                export=bool(self.output),
                seed=spec.training.seed,
                shuffle=spec.training.shuffle,
                min_workers=self.workers_min,
                max_workers=self.workers_max,
                task_attempts=spec.failures.task_attempts or TASK_ATTEMPTS,
                allow_dead_letters=spec.failures.allow_dead_letters,
                worker_crashes=spec.failures.worker_crashes or WORKER_CRASHES,
                timings=timings_for(self.workers_max, self.worker_grace_s),
            )
        except ValueError as error:
            raise _usage(str(error)) from error


def read(
    spec: job_pb2.JobSpec,
    job_dir: Path,
    environ: Mapping[str, str] = os.environ,
    rhythm: Rhythm = Rhythm(),
) -> Config:
    """Settings of a job.

    Args:
        spec: what the user submitted.
        job_dir: where the master was told to work.
        environ: ``EDL_PYTHON`` names the workers' interpreter.
        rhythm: for tests.

    Raises:
        EdlError: USAGE; something is missing or makes no sense.
    """
    if spec.type not in JOB_TYPES:
        raise _usage("the job has no type: TRAIN, EVALUATE or PREDICT")
    required = {"name": spec.name, "data": spec.data}
    if spec.type == job_pb2.PREDICT:
        required["output"] = spec.output
    for name, value in required.items():
        if not value:
            raise _usage(f"the job has no {name}")
    workers_max = spec.workers.max or max(spec.workers.min, WORKERS)
    workers_min = spec.workers.min if spec.workers.max else workers_max
    if workers_min > workers_max:
        raise _usage(f"at least {workers_min} and at most {workers_max} workers cannot be")
    reduction = spec.training.gradient_reduction
    if reduction and reduction not in tuple(Reduction):
        raise _usage(f"the gradient reduction is mean or sum, not {reduction!r}")
    local_steps = spec.training.local_steps
    if local_steps > 1 and spec.training.update in (job_pb2.SYNC, job_pb2.BOUNDED):
        raise _usage("local steps are for --update async")
    if spec.training.wire_precision not in job_pb2.WirePrecision.values():
        raise _usage(f"numbers do not travel in precision {spec.training.wire_precision}")
    if spec.training.parameter_servers > MOST_SERVERS:
        raise _usage(f"there can be at most {MOST_SERVERS} parameter servers")
    checkpoints, tensorboard = spec.training.checkpoint_dir, spec.tensorboard_dir
    stored = is_store(checkpoints)
    here = None
    if checkpoints:
        here = (
            job_dir / job_directory.CHECKPOINTS
            if stored
            else _local(checkpoints, "--checkpoint-dir")
        )
    return Config(
        spec=spec,
        job_dir=job_dir,
        type=JOB_TYPES[spec.type],
        update=spec.training.update or job_pb2.ASYNC,
        workers_min=workers_min,
        workers_max=workers_max,
        parameter_servers=spec.training.parameter_servers if spec.type == job_pb2.TRAIN else 0,
        host=spec.serving.host or HOST,
        output=_place(spec.output) if spec.output else "",
        checkpoint_dir=here,
        checkpoint_store=checkpoints if stored else "",
        keep_checkpoints=spec.training.keep_checkpoints or KEEP_CHECKPOINTS,
        tensorboard_dir=(
            _local(tensorboard, "--tensorboard-dir")
            if tensorboard
            else job_dir / job_directory.TENSORBOARD
        ),
        worker_grace_s=spec.worker_grace_s or WORKER_GRACE_S,
        python=environ.get("EDL_PYTHON") or sys.executable,
        environ=environ,
        rhythm=rhythm,
    )


def _place(place: str) -> str:
    """A URI of a store as it is; a path made absolute."""
    path = place.removeprefix("file://")
    return path if "://" in path else str(Path(path).absolute())


def _local(place: str, option: str) -> Path:
    """A place on this machine. A URI of a store taken for a path would make odd directories."""
    path = place.removeprefix("file://")
    if "://" in path:
        raise _usage(f"{option} must be a path on this machine, not {place}")
    return Path(path).absolute()


def _usage(what: str) -> EdlError:
    return EdlError(
        error_pb2.USAGE,
        what,
        where=job_directory.SPEC,
        remedy="Submit the job again with other options.",
    )
