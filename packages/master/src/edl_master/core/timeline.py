"""What each worker did when: its tasks, and where its time went.

Both follow from messages that workers send anyway. A heartbeat carries how many seconds the worker
has spent in each phase of its training steps; the rest of the time is named after what the worker
says that it is doing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from edl_master.core.identifiers import InstanceId, TaskKey, TaskType, Token, WorkerId

IDLE, LOADING, OTHER = "idle", "loading", "other"
"""The rest of a worker's time: without work, before its model is ready, or at work that is no
training step (evaluation, prediction, export, compiling the model)."""

_REST = {"loading": LOADING, "idle": IDLE, "waiting": IDLE, "leaving": IDLE}
"""What the rest is called, by the phase that a heartbeat names."""

_IN_A_STEP = ("computing", "exchanging")

_LONGEST_STEP_S = 60.0
"""A training step is counted when it ends; so long its time is not taken for other work."""

_MOST_BETWEEN_HEARTBEATS_S = 1e7
"""No clock counts more between two heartbeats; a worker that says so makes it up."""

_MOST_FINISHED = 50_000
"""Spans that wait to be taken; nobody takes them while a disk is stuck."""


class SpanOutcome(StrEnum):
    """How a worker's work on a task ended."""

    DONE = "done"
    FAILED = "failed"
    RETURNED = "returned"
    LOST = "lost"
    UNFINISHED = "unfinished"


@dataclass(frozen=True, slots=True)
class TaskSpan:
    """A worker's work on a task.

    Attributes:
        at: when it began, on the clock of the caller's ``now``.
        seconds: how long it took.
        worker: that held the task.
        task: which one.
        outcome: how it ended.
    """

    at: float
    seconds: float
    worker: WorkerId
    task: TaskKey
    outcome: SpanOutcome


@dataclass(frozen=True, slots=True)
class PhaseSpan:
    """Where the time of a worker went between two heartbeats.

    Attributes:
        at: when the time began, on the clock of the caller's ``now``.
        seconds: how long it was.
        worker: whose time.
        phases: seconds by phase; they add up to ``seconds``, but for time that no clock saw.
    """

    at: float
    seconds: float
    worker: WorkerId
    phases: Mapping[str, float]


Span = TaskSpan | PhaseSpan


@dataclass(slots=True)
class _Grant:
    """A task that a worker holds."""

    at: float
    worker: WorkerId
    instance: InstanceId
    token: Token


@dataclass(slots=True)
class _Watch:
    """One instance of a worker.

    Attributes:
        since: when the present span began.
        heard: the last heartbeat.
        totals: seconds by phase that it had counted then.
        steps: seconds by phase that belong to no finished span yet.
        rest: seconds of the present span that are no training steps, by name.
        counted: whether a phase was counted in the present span.
    """

    instance: InstanceId
    since: float
    heard: float
    totals: Mapping[str, float]
    steps: dict[str, float] = field(default_factory=dict)
    rest: dict[str, float] = field(default_factory=dict)
    counted: bool = False


class Timeline:
    """Makes spans of leases and heartbeats. Times never go back: an earlier ``now`` counts as 0 s.

    Args:
        now: when the record begins. The longer it gets, the longer are its spans of phases.
    """

    def __init__(self, now: float) -> None:
        self._began = now
        self._grants: dict[TaskKey, _Grant] = {}
        self._free_since: dict[WorkerId, float] = {}
        self._watches: dict[WorkerId, _Watch] = {}
        self._finished: list[Span] = []
        self.dropped = 0
        """Finished spans that were left out because nobody took the earlier ones."""

    def leased(
        self, now: float, worker: WorkerId, instance: InstanceId, task: TaskKey, token: Token
    ) -> None:
        """A worker has got a task. An earlier holder of the same task has lost it."""
        former = self._grants.get(task)
        if former is not None:
            if former.token > token:
                return
            self._end(now, task, former, SpanOutcome.LOST)
        self._grants[task] = _Grant(now, worker, instance, token)

    def ended(
        self, now: float, worker: WorkerId, task: TaskKey, token: Token, outcome: SpanOutcome
    ) -> None:
        """A worker has said how its work on a task ended; only the holder of the lease counts."""
        grant = self._grants.get(task)
        if grant is not None and (grant.worker, grant.token) == (worker, token):
            self._end(now, task, grant, outcome)

    def gone(self, now: float, worker: WorkerId, instance: InstanceId) -> None:
        """An instance has ended; what it still held is lost."""
        held = [
            (task, grant)
            for task, grant in self._grants.items()
            if (grant.worker, grant.instance) == (worker, instance)
        ]
        for task, grant in held:
            self._end(now, task, grant, SpanOutcome.LOST)
        watch = self._watches.get(worker)
        if watch is not None and watch.instance == instance:
            self._add(_phase_span(worker, watch))
            del self._watches[worker]

    def heard(
        self,
        now: float,
        worker: WorkerId,
        instance: InstanceId,
        doing: str,
        totals: Mapping[str, float],
    ) -> None:
        """A heartbeat.

        Args:
            now: when it came.
            worker: who sent it.
            instance: which process of that worker.
            doing: the phase that it names, such as ``loading`` or ``computing``.
            totals: seconds by phase of training steps, since the instance began.
        """
        watch = self._watches.get(worker)
        if watch is None or watch.instance != instance:
            if watch is not None:
                self._add(_phase_span(worker, watch))
            self._watches[worker] = _Watch(instance, now, now, totals)
            return
        passed, counted = max(0.0, now - watch.heard), 0.0
        for phase, total in totals.items():
            more = total - watch.totals.get(phase, 0.0)
            if 0 < more < _MOST_BETWEEN_HEARTBEATS_S:
                watch.steps[phase] = watch.steps.get(phase, 0.0) + more
                counted += more
        rest = _REST.get(doing, OTHER)
        watch.rest[rest] = watch.rest.get(rest, 0.0) + passed
        watch.counted = watch.counted or counted > 0
        watch.heard, watch.totals = max(now, watch.heard), totals
        age = watch.heard - watch.since
        if age < self._interval(now):
            return
        in_a_step = doing in _IN_A_STEP and not watch.counted and self._trains(worker)
        if in_a_step and age < _LONGEST_STEP_S:
            return
        self._add(_phase_span(worker, watch))
        watch.since, watch.rest, watch.counted = watch.heard, {}, False

    def unfinished(self, now: float) -> list[Span]:
        """What goes on at the moment, as if it ended now; nothing changes."""
        spans: list[Span] = [
            self._task_span(now, task, grant, SpanOutcome.UNFINISHED)
            for task, grant in self._grants.items()
        ]
        for worker, watch in self._watches.items():
            if watch.heard > watch.since:
                spans.append(_phase_span(worker, watch, keep=True))
        return spans

    def take(self) -> list[Span]:
        """The spans that were finished since the last call, in the order of their ends."""
        finished, self._finished = self._finished, []
        return finished

    def _interval(self, now: float) -> float:
        """How long spans of phases are: they must not add up to more than anybody looks at."""
        return max(1.0, (now - self._began) / 500, len(self._watches) / 10)

    def _trains(self, worker: WorkerId) -> bool:
        return any(
            grant.worker == worker and task.type is TaskType.TRAINING
            for task, grant in self._grants.items()
        )

    def _end(self, now: float, task: TaskKey, grant: _Grant, outcome: SpanOutcome) -> None:
        del self._grants[task]
        span = self._task_span(now, task, grant, outcome)
        self._free_since[grant.worker] = span.at + span.seconds
        self._add(span)

    def _task_span(
        self, now: float, task: TaskKey, grant: _Grant, outcome: SpanOutcome
    ) -> TaskSpan:
        # A task is leased while the one before is worked on.
        at = max(grant.at, self._free_since.get(grant.worker, grant.at))
        return TaskSpan(at, max(0.0, now - at), grant.worker, task, outcome)

    def _add(self, span: Span) -> None:
        if span.seconds <= 0 and isinstance(span, PhaseSpan):
            return
        if len(self._finished) < _MOST_FINISHED:
            self._finished.append(span)
        else:
            self.dropped += 1


def _phase_span(worker: WorkerId, watch: _Watch, *, keep: bool = False) -> PhaseSpan:
    """The present span of a worker.

    Steps that took more time than the span has are those of the span before, too: what does not fit
    counts in the next one.

    Args:
        worker: whose span.
        watch: loses what is in the span, unless it is kept.
        keep: for looking only.
    """
    seconds = watch.heard - watch.since
    steps = sum(watch.steps.values())
    share = min(1.0, seconds / steps) if steps > 0 else 0.0
    phases = {phase: spent * share for phase, spent in watch.steps.items() if spent > 0}
    left = max(0.0, seconds - steps)
    rest = sum(watch.rest.values())
    for name, spent in watch.rest.items():
        if left > 0 and rest > 0:
            phases[name] = phases.get(name, 0.0) + left * spent / rest
    if not keep:
        watch.steps = {phase: spent * (1 - share) for phase, spent in watch.steps.items()}
    return PhaseSpan(watch.since, seconds, worker, phases)
