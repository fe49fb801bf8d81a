"""The timeline of each worker: its tasks, and where its time went.

Both follow from messages that workers send anyway. A heartbeat carries how many seconds the worker
has spent in each phase of its training steps; the rest of the time is named after the phase that
the worker reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from edl_master.core.identifiers import InstanceId, TaskKey, TaskType, Token, WorkerId

COMPUTE, INPUT, EXCHANGE = "compute", "input", "exchange"
"""The phases of a training step, as workers count them."""

IDLE, LOADING, OTHER = "idle", "loading", "other"
"""The rest of a worker's time: without work, before its model is ready, or at work that is no
training step (evaluation, prediction, export, compiling the model)."""

_REST = {"loading": LOADING, "idle": IDLE, "waiting": IDLE, "leaving": IDLE}
"""The name of the remaining time, by the phase of the heartbeat."""

_IN_A_STEP = ("computing", "exchanging")

_MAX_STEP_S = 60.0
"""A training step is counted when it ends. Until then, for at most this long, its time is not
counted as other work."""

_MAX_HEARTBEAT_GAP_S = 1e7
"""The longest credible time between two heartbeats; a worker that reports more is faulty."""

_MAX_FINISHED_SPANS = 50_000
"""The limit of finished spans that are kept while the disk does not take them."""


class SpanOutcome(StrEnum):
    """The outcomes of a worker's work on a task."""

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
    """The use of a worker's time between two heartbeats.

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
class _InstanceTiming:
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
        self._instances: dict[WorkerId, _InstanceTiming] = {}
        self._finished: list[Span] = []
        self.dropped = 0
        """The number of spans that were dropped because the earlier ones were not taken."""

    def record_lease(
        self, now: float, worker: WorkerId, instance: InstanceId, task: TaskKey, token: Token
    ) -> None:
        """Record that a worker has got a task, and that an earlier holder has lost it."""
        former = self._grants.get(task)
        if former is not None:
            if former.token > token:
                return
            self._end(now, task, former, SpanOutcome.LOST)
        self._grants[task] = _Grant(now, worker, instance, token)

    def record_end(
        self, now: float, worker: WorkerId, task: TaskKey, token: Token, outcome: SpanOutcome
    ) -> None:
        """Record how a worker's work on a task ended; only the holder of the lease counts."""
        grant = self._grants.get(task)
        if grant is not None and (grant.worker, grant.token) == (worker, token):
            self._end(now, task, grant, outcome)

    def record_exit(self, now: float, worker: WorkerId, instance: InstanceId) -> None:
        """Record that an instance has ended; what it still held is lost."""
        held = [
            (task, grant)
            for task, grant in self._grants.items()
            if (grant.worker, grant.instance) == (worker, instance)
        ]
        for task, grant in held:
            self._end(now, task, grant, SpanOutcome.LOST)
        timing = self._instances.get(worker)
        if timing is not None and timing.instance == instance:
            self._add(_phase_span(worker, timing))
            del self._instances[worker]

    def record_heartbeat(
        self,
        now: float,
        worker: WorkerId,
        instance: InstanceId,
        reported: str,
        totals: Mapping[str, float],
    ) -> None:
        """Record a heartbeat.

        Args:
            now: when it came.
            worker: who sent it.
            instance: which process of that worker.
            reported: the phase that it reports, such as ``loading`` or ``computing``.
            totals: seconds by phase of training steps, since the instance began.
        """
        timing = self._instances.get(worker)
        if timing is None or timing.instance != instance:
            if timing is not None:
                self._add(_phase_span(worker, timing))
            self._instances[worker] = _InstanceTiming(instance, now, now, totals)
            return
        passed, counted = max(0.0, now - timing.heard), 0.0
        for phase, total in totals.items():
            more = total - timing.totals.get(phase, 0.0)
            if 0 < more < _MAX_HEARTBEAT_GAP_S:
                timing.steps[phase] = timing.steps.get(phase, 0.0) + more
                counted += more
        rest = _REST.get(reported, OTHER)
        timing.rest[rest] = timing.rest.get(rest, 0.0) + passed
        timing.counted = timing.counted or counted > 0
        timing.heard, timing.totals = max(now, timing.heard), totals
        age = timing.heard - timing.since
        if age < self._interval(now):
            return
        in_a_step = reported in _IN_A_STEP and not timing.counted and self._trains(worker)
        if in_a_step and age < _MAX_STEP_S:
            return
        self._add(_phase_span(worker, timing))
        timing.since, timing.rest, timing.counted = timing.heard, {}, False

    def unfinished_spans(self, now: float) -> list[Span]:
        """Return the spans in progress as if they ended now; nothing changes."""
        spans: list[Span] = [
            self._task_span(now, task, grant, SpanOutcome.UNFINISHED)
            for task, grant in self._grants.items()
        ]
        for worker, timing in self._instances.items():
            if timing.heard > timing.since:
                spans.append(_phase_span(worker, timing, keep=True))
        return spans

    def take(self) -> list[Span]:
        """Return the spans that were finished since the last call, in the order of their ends."""
        finished, self._finished = self._finished, []
        return finished

    def _interval(self, now: float) -> float:
        """Return how long spans of phases are; it grows, so that their number stays bounded."""
        return max(1.0, (now - self._began) / 500, len(self._instances) / 10)

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
        if len(self._finished) < _MAX_FINISHED_SPANS:
            self._finished.append(span)
        else:
            self.dropped += 1


def _phase_span(worker: WorkerId, timing: _InstanceTiming, *, keep: bool = False) -> PhaseSpan:
    """Return the present span of a worker.

    Steps that took more time than the span has are those of the span before, too: what does not fit
    counts in the next one.

    Args:
        worker: whose span.
        timing: of its instance; what is in the span is taken out, unless ``keep``.
        keep: only compute it; change nothing.
    """
    seconds = timing.heard - timing.since
    steps = sum(timing.steps.values())
    share = min(1.0, seconds / steps) if steps > 0 else 0.0
    phases = {phase: spent * share for phase, spent in timing.steps.items() if spent > 0}
    left = max(0.0, seconds - steps)
    rest = sum(timing.rest.values())
    for name, spent in timing.rest.items():
        if left > 0 and rest > 0:
            phases[name] = phases.get(name, 0.0) + left * spent / rest
    if not keep:
        timing.steps = {phase: spent * (1 - share) for phase, spent in timing.steps.items()}
    return PhaseSpan(timing.since, seconds, worker, phases)
