"""One worker and its present body: the states of a body's life, and what is known of it.

A worker is a number. Its body is a process that starts, loads the model file, is ready,
leaves or is lost, and is gone. Only a body that is gone is followed by another one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

from edl_master.core.events import InstanceExited
from edl_master.core.failure_policy import ExitKind
from edl_master.core.goodput import TimeCategory
from edl_master.core.identifiers import InstanceId, TaskKey, WorkerId, WorkerState
from edl_master.core.progress import Rate
from edl_master.core.stall_detector import Watch
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
"""Which state may follow which; anything else is a defect of this program."""

FORMER_BODIES_KEPT = 8
"""To tell the recently replaced from newcomers; older ones are long dead."""


WAITING = "waiting"
"""What a worker says in its heartbeats while it waits for a task or for a step permit."""

LOADING = "loading"
"""What it says until it has loaded the model and sent its first values."""


class IllegalStateChange(Exception):
    """A worker was to go from one state to another that cannot follow it."""


@dataclass(slots=True)
class Member:
    """A worker and its present body."""

    id: WorkerId
    rate: Rate
    state: WorkerState = WorkerState.GONE
    since: float = 0.0
    """When it came into this state."""
    attempt: int = -1
    """Number of its latest body, from 0."""
    body: InstanceId | None = None
    """None until it registers."""
    former: tuple[InstanceId, ...] = ()
    host: str = ""
    pid: int = 0
    heard_at: float | None = None
    was_ready: bool = False
    """What a lost body is again when it is heard."""
    leave_reason: str = ""
    """Why the body leaves, by our wish or its own; empty while it stays."""
    leaving_as: ExitKind | None = None
    """How its end is to be taken, when that is known before."""
    killed_at: float | None = None
    productive: bool = False
    """Whether this body got any work done."""
    false_alarms: int = 0
    """How often this body was taken for lost and came back."""
    watch: Watch = field(default_factory=lambda: Watch(0.0))
    """Its progress in the work at hand."""
    phase: str = ""
    """What it said in its last heartbeat that it does."""
    consecutive_failures: int = 0
    """Bodies in a row that ended, not as asked, before they got any work done."""
    restart_at: float | None = None
    records: int = 0
    steps: int = 0
    last_exit: str = ""

    @property
    def alive(self) -> bool:
        """Whether a body is there that might take work now or soon."""
        return self.state in (WorkerState.LOADING, WorkerState.READY)

    @property
    def name(self) -> str:
        """The worker in words, to begin a sentence with."""
        return f"W{str(self)[1:]}"

    def __str__(self) -> str:
        at = f" ({self.host}, pid {self.pid})" if self.host else ""
        return f"worker {self.id}{at}"

    def move(self, state: WorkerState, now: float) -> None:
        """Come into another state.

        Raises:
            IllegalStateChange: it cannot follow the present one.
        """
        if state not in _MOVES[self.state]:
            raise IllegalStateChange(f"{self}: {self.state} to {state}")
        self.state = state
        self.since = now

    def spends(self, holds: bool) -> TimeCategory:
        """What the worker's time goes into at the moment.

        Args:
            holds: it has a task.
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

    def new_body(self) -> None:
        """Forget the present body; the next one will be another."""
        if self.body is not None:
            self.former = (*self.former, self.body)[-FORMER_BODIES_KEPT:]
        self.body = None
        self.host, self.pid = "", 0
        self.heard_at = None
        self.was_ready = self.productive = False
        self.false_alarms, self.phase = 0, ""
        self.watch = Watch(0.0)
        self.leave_reason, self.leaving_as, self.killed_at = "", None, None
        self.restart_at = None

    def is_it(self, event: InstanceExited) -> bool:
        """Whether the body that ended is the present one, by whatever name it has."""
        if event.body is not None and event.body in self.former:
            return False  # another one has come in its place, under the same attempt perhaps
        if event.attempt is not None and event.attempt == self.attempt:
            return True
        if event.body is not None and self.body is not None:
            return event.body == self.body
        return event.attempt is None and event.body not in self.former

    def knows_dead(self, body: InstanceId) -> bool:
        """Whether a body was this worker's, and is gone or replaced."""
        return body in self.former or (self.state is WorkerState.GONE and body == self.body)

    def view(self, task: TaskKey | None, now: float) -> WorkerView:
        """Say what the worker looks like, holding this task."""
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
            heartbeat_age_s=-1.0 if self.heard_at is None else now - self.heard_at,
        )

    def check_invariants(self) -> None:
        """Raise AssertionError when the state contradicts itself."""
        leaves = self.state is WorkerState.LEAVING
        assert self.leaving_as is not None if leaves else True, self
        assert self.leaving_as is None or leaves or self.state is WorkerState.GONE, self
        assert self.restart_at is None or self.state is WorkerState.GONE, self
        if self.state in (WorkerState.LOADING, WorkerState.READY, WorkerState.LOST):
            assert self.body is not None, self
