"""One worker and its current instance: the states of an instance, and what is known about it.

A worker is a number. Its instance is a process or pod that starts, loads the model file, is ready,
leaves or is lost, and is gone. Only an instance that is gone is followed by another one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

from edl_master.core.events import InstanceExited
from edl_master.core.failure_policy import ExitKind
from edl_master.core.goodput import TimeCategory
from edl_master.core.identifiers import InstanceId, TaskKey, WorkerId, WorkerState
from edl_master.core.job_phases import InvalidTransition
from edl_master.core.progress import Rate
from edl_master.core.stall_detector import ProgressWatch
from edl_master.core.view import WorkerView

_MOVES: dict[WorkerState, frozenset[WorkerState]] = {
    WorkerState.GONE: frozenset({WorkerState.STARTING, WorkerState.LOADING, WorkerState.LOST}),
    WorkerState.STARTING: frozenset({WorkerState.LOADING, WorkerState.LEAVING, WorkerState.GONE}),
    WorkerState.LOADING: frozenset(
        {WorkerState.LOADING, WorkerState.READY, WorkerState.LEAVING, WorkerState.LOST}
        | {WorkerState.GONE}
    ),
    WorkerState.READY: frozenset(
        {WorkerState.LOADING, WorkerState.LEAVING, WorkerState.LOST, WorkerState.GONE}
    ),
    WorkerState.LOST: frozenset(
        {WorkerState.LOADING, WorkerState.READY, WorkerState.LEAVING, WorkerState.GONE}
    ),
    WorkerState.LEAVING: frozenset({WorkerState.GONE}),
}
"""Which state may follow which; any other change is an internal error."""

FORMER_INSTANCES_KEPT = 8
"""They distinguish an instance that was replaced from a new one; older ones ended long ago."""

MAX_INSTANCES = FORMER_INSTANCES_KEPT
"""The limit of instances that register after one start of the worker: one, unless a user starts
another. A faulty worker cannot fill events, metrics and timeline with new names."""


WAITING = "waiting"
"""What a worker says in its heartbeats while it waits for a task or for a step permit."""

LOADING = "loading"
"""Phase until the worker has loaded the model and sent the initial values."""


@dataclass(slots=True)
class Worker:
    """A worker and its current instance."""

    id: WorkerId
    rate: Rate
    state: WorkerState = WorkerState.GONE
    since: float = 0.0
    """When the worker came into this state."""
    pending: str = ""
    """Why a starting instance has no place yet; empty: it has one."""
    silence: str = ""
    """What is known of a starting instance that has a place and does not register."""
    inspected_at: float | None = None
    """When the platform was last asked for that; None: it was not."""
    attempt: int = -1
    """Number of the latest instance, from 0."""
    instance: InstanceId | None = None
    """None until the instance registers."""
    former_instances: tuple[InstanceId, ...] = ()
    registered: int = 0
    """The number of instances registered since the platform was last asked to start one."""
    host: str = ""
    pid: int = 0
    last_message_at: float | None = None
    was_ready: bool = False
    """Whether a lost instance is READY, and not LOADING, when its next message arrives."""
    leave_reason: str = ""
    """Why the instance leaves, on request or by itself; empty while it stays."""
    leaving_as: ExitKind | None = None
    """How its end counts, when that is known before the end."""
    killed_at: float | None = None
    productive: bool = False
    """Whether this instance got any work done."""
    false_alarms: int = 0
    """How often this instance was declared lost and sent a message afterwards."""
    watch: ProgressWatch = field(default_factory=lambda: ProgressWatch(0.0))
    """Progress of the instance in its present work."""
    phase: str = ""
    """Phase that the last heartbeat named."""
    consecutive_failures: int = 0
    """Instances in a row that ended unasked before they got any work done."""
    restart_at: float | None = None
    records: int = 0
    steps: int = 0
    last_exit: str = ""

    @property
    def is_ready(self) -> bool:
        """Whether the worker can take tasks now."""
        return self.state is WorkerState.READY

    @property
    def alive(self) -> bool:
        """Whether the worker has an instance that might take work now or soon."""
        return self.state in (WorkerState.LOADING, WorkerState.READY)

    @property
    def name(self) -> str:
        """The worker in words, capitalised for the start of a sentence."""
        return f"W{str(self)[1:]}"

    def __str__(self) -> str:
        at = f" ({self.host}, pid {self.pid})" if self.host else ""
        return f"worker {self.id}{at}"

    def move(self, state: WorkerState, now: float) -> None:
        """Change the state.

        Raises:
            InvalidTransition: the new state cannot follow the present one.
        """
        if state not in _MOVES[self.state]:
            raise InvalidTransition(f"{self}: {self.state} to {state}")
        self.state = state
        self.since = now
        self.pending = self.silence = ""
        self.inspected_at = None

    def time_use(self, holds: bool) -> TimeCategory:
        """Return the category that the worker's time goes into at the moment.

        Args:
            holds: the worker holds a task.
        """
        match self.state:
            case WorkerState.READY if self.watch.asked_at is not None:
                return TimeCategory.STALLED
            case WorkerState.READY | WorkerState.WORKING:
                return (
                    TimeCategory.PRODUCTIVE
                    if holds and self.phase != WAITING
                    else TimeCategory.WAITING
                )
            case WorkerState.LOST:
                return TimeCategory.STALLED
            case (
                WorkerState.STARTING | WorkerState.LOADING | WorkerState.LEAVING | WorkerState.GONE
            ):
                return TimeCategory.STARTING if self.attempt <= 0 else TimeCategory.RESTARTING
            case _:
                assert_never(self.state)

    def leave(self, reason: str, kind: ExitKind, now: float) -> None:
        """Let the instance leave; ``kind`` says how its end counts."""
        self.move(WorkerState.LEAVING, now)
        self.leave_reason = reason
        self.leaving_as = kind

    def clear_instance(self) -> None:
        """Forget the current instance, before the next one."""
        if self.instance is not None:
            self.former_instances = (*self.former_instances, self.instance)[-FORMER_INSTANCES_KEPT:]
        self.instance = None
        self.host, self.pid = "", 0
        self.last_message_at = None
        self.was_ready = self.productive = False
        self.false_alarms, self.phase = 0, ""
        self.watch = ProgressWatch(0.0)
        self.leave_reason, self.leaving_as, self.killed_at = "", None, None
        self.restart_at = None

    def is_current(self, event: InstanceExited) -> bool:
        """Return whether the instance that ended is the current one, by name or by attempt."""
        if event.instance is not None and event.instance in self.former_instances:
            return False  # replaced, perhaps under the same attempt
        if event.attempt is not None and event.attempt == self.attempt:
            return True
        if event.instance is not None and self.instance is not None:
            return event.instance == self.instance
        return event.attempt is None and event.instance not in self.former_instances

    def has_seen_end_of(self, instance: InstanceId) -> bool:
        """Return whether an instance was this worker's, and is gone or replaced."""
        return instance in self.former_instances or (
            self.state is WorkerState.GONE and instance == self.instance
        )

    def view(self, task: TaskKey | None, now: float) -> WorkerView:
        """Return a view of the worker, which holds this task."""
        working = self.state is WorkerState.READY and task is not None
        return WorkerView(
            id=self.id,
            state=WorkerState.WORKING if working else self.state,
            host=self.host,
            pid=self.pid,
            task=task,
            records=self.records,
            steps=self.steps,
            records_per_s=self.rate.per_s(now),
            restarts=max(0, self.attempt),
            last_exit=self.last_exit,
            heartbeat_age_s=-1.0 if self.last_message_at is None else now - self.last_message_at,
            pending=self.pending or self.silence,
        )

    def check_invariants(self) -> None:
        """Raise AssertionError when the state contradicts itself."""
        leaves = self.state is WorkerState.LEAVING
        assert self.leaving_as is not None if leaves else True, self
        assert self.leaving_as is None or leaves or self.state is WorkerState.GONE, self
        assert self.restart_at is None or self.state is WorkerState.GONE, self
        if self.state in (WorkerState.LOADING, WorkerState.READY, WorkerState.LOST):
            assert self.instance is not None, self
