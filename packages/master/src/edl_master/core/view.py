"""The view of a job from outside at one moment, in plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from edl_master.core.effects import JobPhase, Range
from edl_master.core.failure import Failure
from edl_master.core.identifiers import TaskKey, TaskType, WorkerId, WorkerState
from edl_master.core.settings import JobType


@dataclass(frozen=True, slots=True)
class ProgressView:
    """The progress of the job's main work, over all its epochs."""

    records_done: int
    records_total: int
    epoch: int
    """Epoch of the oldest task that is not complete, from 1; 0 for jobs without epochs."""
    num_epochs: int
    epochs_done: int
    """Whole passes over the data."""
    is_stream: bool
    """Whether epochs are windows of a stream; their number is 0 until the stream has ended."""
    steps: int
    """Minibatches applied."""
    parameter_version: int
    records_per_s: float
    """Average over the last ``Timings.rate_window_s``."""
    mean_records_per_s: float
    """From the first records done to the last, without start and end; 0: not known yet."""
    eta_s: float
    """Seconds to the end of the main work; negative: unknown."""
    loss: float
    """Smoothed; NaN before the first minibatch."""
    goodput: float
    """Worker seconds in work that counted / worker seconds wanted so far, 0 to 1."""
    productive_s: float
    """Worker seconds in work that counted."""
    lost_s: dict[str, float]
    """The other worker seconds, by reason: see ``core.goodput.TimeCategory``."""


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One worker and its present instance."""

    id: WorkerId
    state: WorkerState
    host: str
    pid: int
    task: TaskKey | None
    """The oldest task it holds."""
    records: int
    steps: int
    records_per_s: float
    restarts: int
    last_exit: str
    """How its previous instance ended, for users; empty when none has."""
    heartbeat_age_s: float
    """Seconds since its last message; negative: none yet."""
    pending: str = ""
    """Why its instance has no place yet, or has one and does not register; else empty."""


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """Tasks of one type over all rounds known so far; ``retried`` counts leases beyond a first."""

    pending: int = 0
    leased: int = 0
    done: int = 0
    retried: int = 0
    dead: int = 0


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A task that the job continued without, or failed by.

    ``records_trained`` of its records are in the model all the same.
    """

    task: TaskKey
    records: tuple[Range, ...]
    failure: Failure
    records_trained: int = 0


def dead_letter_to_json(letter: DeadLetter) -> dict[str, Any]:
    """Return a dead letter as JSON-able values."""
    return asdict(letter)


def dead_letter_from_json(saved: Mapping[str, Any]) -> DeadLetter:
    """Undo ``dead_letter_to_json``, also after a trip through JSON."""
    key, records = saved["task"], saved["records"] or ()
    if isinstance(records, Mapping):  # of a snapshot when tasks had one range
        records = (records,)
    return DeadLetter(
        TaskKey(TaskType(key["type"]), key["round"], key["number"]),
        tuple(Range(**part) for part in records),
        Failure(**saved["failure"]),
        saved["records_trained"],
    )


@dataclass(frozen=True, slots=True)
class JobView:
    """The whole job, as ``edl.v1.JobStatus`` shows it; ``codec`` adds names, URLs and times."""

    type: JobType
    phase: JobPhase
    progress: ProgressView
    metrics: dict[str, float]
    """Of the last evaluation."""
    workers: tuple[WorkerView, ...]
    tasks: dict[TaskType, TaskCounts]
    failure: Failure | None
    """Set from the moment on that the job is bound to fail or to be cancelled."""
    seconds: float
    """Since the first Tick; stands still once the job's end is decided."""
    min_workers: int
    max_workers: int
    dead_letters: tuple[DeadLetter, ...]
    """The first hundred; ``tasks`` counts all."""
    records_trained: int
    """Training records in the model, each counted once per epoch."""
    examples: int
    """What the input function has made of the records in complete tasks of the main work."""
    examples_of: int
    """These records."""
    records_replayed: int
    """Upper bound of the records that were computed a second time after a loss."""
    preemptions: int
    worker_failures: int
    predictions: int
    gradients_rejected: int
    staleness_mean: float
    saved_version: int | None
    """Parameter version of the newest snapshot; None: there is none."""
    warnings: tuple[str, ...]
    """What the result of the job lacks, and why."""
    learning_rate: float | None
    """The rate that callbacks or a client have set; None: as the optimizer says."""
    requested_rates: int
    """How often a client has set it."""
