"""Every number that the job state machine depends on, with its unit and its reason."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from edl_master.core.autoscaling import WorkerCountRules
from edl_master.core.mixing import Mixing
from edl_master.core.stall_detector import StallTimeouts
from edl_master.core.windows import WindowRule


class JobType(StrEnum):
    """The purpose of a job."""

    TRAIN = "train"
    EVALUATE = "evaluate"
    PREDICT = "predict"


@dataclass(frozen=True, slots=True)
class Timings:
    """Durations in seconds. The defaults suit one machine and a small cluster alike."""

    worker_grace_s: float
    """From asking an instance to leave to killing it; the client chooses it."""

    lease_ttl_s: float = 10.0
    """A lease that is not renewed for so long is lost. Twenty missed heartbeats."""

    heartbeat_every_s: float = 0.5
    """How often a worker sends a heartbeat; see ``timings_for`` for very many workers."""

    heartbeat_loss_s: float = 1.6
    """Silence after which a ready worker counts as lost: three heartbeats. Its task is leased
    again within 2 s. A worker that returns has lost a minibatch, and gets a longer limit."""

    loss_doublings: int = 4
    """How often ``heartbeat_loss_s`` doubles for an instance: once for each time that it
    returns after a loss. Code that blocks a process for half a minute is tolerated that way."""

    start_timeout_s: float = 120.0
    """From starting an instance to its registration, and the longest silence while it loads.
    Imports of TensorFlow and cold disks are slow, but not that slow."""

    inspect_s: float = 30.0
    """How long an instance may run without registering until its platform is asked why, again and
    again. A process that imports TensorFlow on a busy machine has registered by then."""

    lost_kill_s: float = 30.0
    """A lost worker that stays silent for so long is killed and started again."""

    exit_wait_s: float = 10.0
    """From killing an instance to giving it up when the platform never reports its end."""

    restart_backoff_s: float = 1.0
    """Wait before the second restart in a row; doubles from there. The first has no wait."""

    restart_backoff_max_s: float = 30.0
    """Longest wait before a restart."""

    retry_elsewhere_s: float = 10.0
    """How long a failed task is kept for another worker than the one that failed it."""

    pause_s: float = 0.8
    """No event for so long, not even a tick: the master itself was paused, and deadlines are
    extended by that time. Three times the interval of ticks, and half of what makes a worker
    count as lost."""

    stall: StallTimeouts = field(default_factory=StallTimeouts)
    """How long a worker that sends heartbeats may make no progress."""

    wait_s: float = 0.2
    """When a worker without a task asks again: far below the length of a task."""

    crowded_retry_s: float = 0.2
    """When a worker asks again while many wait already; see ``timings_for``."""

    rate_window_s: float = 10.0
    """Rates are averages over so long: steady to read, and quick to show a change."""


@dataclass(frozen=True, slots=True)
class JobSettings:
    """The work that a job was asked to do, and its rules. Never changes while the job runs.

    Raises:
        ValueError: a number makes no sense; the message names it.
    """

    type: JobType
    records_per_task: int
    minibatch_size: int
    num_epochs: int
    task_attempts: int
    """How often a task may fail before it is dead-lettered; lost leases do not count."""
    worker_crashes: int
    """Consecutive crashes without progress of the job that are a crash loop."""
    epoch_barrier: bool
    """True in synchronous mode: no task of an epoch is leased before the last one is complete."""
    evaluation_steps: int
    """Parameter versions between evaluations; 0: one at the end of every epoch."""
    checkpoint_steps: int
    """Parameter versions between checkpoints; 0: only when training ends or the job is stopped."""
    snapshot_interval_s: float
    """Seconds between snapshots for the next master, should this one fail; 0: none."""
    export: bool
    """Whether a training job ends with an EXPORT task."""
    export_only: bool
    """Whether the parameters are exported as they were restored, without any training."""
    seed: int
    shuffle: bool
    """Records of an epoch in seeded random order; False: in the order of the data."""
    min_workers: int
    max_workers: int
    allow_dead_letters: bool
    timings: Timings
    worker_count: WorkerCountRules = field(default_factory=WorkerCountRules)
    """How the number of workers between minimum and maximum is chosen."""
    replicated: bool = False
    """Whether every worker holds all values, and the workers train in step. If the model decides
    it, the first worker that has loaded the model turns it on."""
    incarnation: str = ""
    """Of the master that does the work."""
    mixing: Mixing | None = None
    """How shuffled tasks are mixed; None: they are ranges of one file, as in jobs of earlier
    versions, and only their order is random."""
    code: str = ""
    """A digest of the model zoo; empty if unknown."""
    allow_gaps: bool = False
    """Whether a task whose records brokers have removed is dead-lettered at once."""
    window: WindowRule | None = None
    """When a window of the stream ends that the job trains on; None: it trains in epochs."""

    def __post_init__(self) -> None:
        for name, least in (
            ("records_per_task", 1),
            ("minibatch_size", 1),
            ("num_epochs", 1),
            ("evaluation_steps", 0),
            ("checkpoint_steps", 0),
            ("min_workers", 0),
            ("max_workers", 1),
            ("task_attempts", 1),
            ("worker_crashes", 1),
        ):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")
        if self.max_workers < self.min_workers:
            raise ValueError(
                f"max_workers must be at least min_workers ({self.min_workers}), "
                f"not {self.max_workers}"
            )


MAX_WORKERS = 1000
"""So many a running job can be scaled to, as the options allow no more at its start."""


def is_worker_range(minimum: int, maximum: int) -> bool:
    """Return whether a running job can be scaled to this range of workers."""
    return minimum >= 0 and max(1, minimum) <= maximum <= MAX_WORKERS


HEARTBEATS_PER_S = 400.0
"""What a master handles from all workers together, in addition to their work."""


def timings_for(workers: int, worker_grace_s: float, stall_timeout_s: float) -> Timings:
    """Return the timings for a number of workers: above some hundred, heartbeats are less frequent.

    Args:
        stall_timeout_s: minimum of all limits of the stall detector; 0: as they are.
    """
    default = Timings(worker_grace_s)
    every_s = max(default.heartbeat_every_s, workers / HEARTBEATS_PER_S)
    loss_s = max(default.heartbeat_loss_s, 3.2 * every_s)
    return replace(
        default,
        heartbeat_every_s=every_s,
        crowded_retry_s=max(default.crowded_retry_s, every_s),
        heartbeat_loss_s=loss_s,
        lease_ttl_s=max(default.lease_ttl_s, 3 * loss_s),
        stall=StallTimeouts(minimum_s=stall_timeout_s),
    )


MINIBATCHES_PER_TASK = 64
"""2-10 s of work on usual models: little to redo after a loss, little traffic about tasks."""

TASKS_PER_WORKER = 4
"""Small data still spreads, and the last tasks of an epoch end close to each other."""

ALONE_MINIBATCHES = 16
"""Of a task of the only worker, at least: small data need not spread, and to begin a task takes as
long as ten steps of a small model."""

STREAM_MINIBATCHES = 16
"""Of a stream's task, at most: what has arrived is divided among the workers at once."""


def choose_records_per_task(
    records: int, minibatch_size: int, workers: int, *, is_stream: bool = False
) -> int:
    """Choose the length of a task: whole minibatches, enough tasks for all workers.

    Args:
        records: records of the main data, all files together.
        minibatch_size: records of one step.
        workers: the most workers that the job may have.
        is_stream: more records will arrive, and their number is not known.

    Returns:
        A multiple of ``minibatch_size``, at least one minibatch and at most
        ``MINIBATCHES_PER_TASK`` of them.
    """
    if is_stream:
        return minibatch_size * STREAM_MINIBATCHES
    spread = records // (TASKS_PER_WORKER * max(workers, 1) * minibatch_size)
    least = 1 if workers > 1 else min(ALONE_MINIBATCHES, -(-records // minibatch_size))
    return minibatch_size * max(least, min(MINIBATCHES_PER_TASK, spread))
