"""The choice of the number of workers within a range: as many as increase throughput.

The policy is a hill climb on records per second. It measures the present number for a while, tries
another one, and keeps the better one: fewer workers if they do nearly as much, more if each of
them adds at least half of what an average worker does. A failed trial is not repeated soon. The
policy does not know the reason: a full machine, a network, a slow disk and a busy parameter plane
all look the same to the policy, and it responds in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass

TRIAL_DIVISOR = 8
"""A trial changes an eighth of the workers, at least one: a range of 1,000 takes minutes."""


@dataclass(frozen=True, slots=True)
class WorkerCountRules:
    """The times of measurements, in seconds, and ``worth``, the criterion for keeping a trial."""

    settle_s: float = 10.0
    """After a change, before anything is measured: caches and pipelines fill."""
    window_s: float = 30.0
    """How long records are counted for one measure."""
    worth: float = 0.5
    """A worker is kept if it adds this share of an average worker's throughput."""
    retry_after_s: float = 120.0
    """After a trial that failed; doubles with each further one."""
    retry_after_max_s: float = 1800.0


@dataclass(frozen=True, slots=True)
class WorkerCountDecision:
    """The policy's decision about the number of workers.

    Attributes:
        kind: name of the event: WorkerCountTried, WorkerCountKept or WorkerCountReverted.
        workers: to have from now on.
        why: a sentence.
        facts: numbers of workers and their records per second, before and after.
    """

    kind: str
    workers: int
    why: str
    facts: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Measured:
    """Records per second of a number of workers."""

    workers: int
    per_s: float


class WorkerCountPolicy:
    """The wanted number of workers between a minimum and a maximum.

    Args:
        minimum, maximum: at least one worker is always wanted.
        rules: when to measure and what to keep.
    """

    def __init__(self, minimum: int, maximum: int, rules: WorkerCountRules) -> None:
        self._rules = rules
        self.scale(minimum, maximum)

    def scale(self, minimum: int, maximum: int) -> None:
        """Start again with another range, at its maximum."""
        self._minimum, self._maximum = max(1, minimum), max(1, maximum)
        self.target = self._maximum
        self._retry_after_s = self._rules.retry_after_s
        self._rest_until = 0.0
        self._down = True
        self._step: int | None = None
        self._trial: _Measured | None = None
        self._window: tuple[float, int] | None = None
        self._settled_at: float | None = None

    def observe(self, now: float, ready: int, records: int) -> tuple[WorkerCountDecision, ...]:
        """Take a measurement; return what was decided, if it was time to decide something.

        Args:
            now: seconds.
            ready: workers that can work.
            records: done so far; only differences count.
        """
        if self._minimum >= self._maximum:
            return ()
        if ready != self.target:
            self._settled_at = self._window = None  # a worker is missing, or has not left yet
            return ()
        if self._settled_at is None:
            self._settled_at = now + self._rules.settle_s
        if now < self._settled_at or (self._trial is None and now < self._rest_until):
            return ()
        if self._window is None:
            self._window = (now, records)
            return ()
        began, before = self._window
        if now - began < self._rules.window_s:
            return ()
        per_s = (records - before) / (now - began)
        self._window = None
        return self._try(per_s) if self._trial is None else self._judge(self._trial, per_s, now)

    def _try(self, per_s: float) -> tuple[WorkerCountDecision, ...]:
        if self._down and self.target <= self._minimum:
            self._down = False
        if not self._down and self.target >= self._maximum:
            self._down = True
        step = self._step or max(1, self.target // TRIAL_DIVISOR)
        wanted = self.target - step if self._down else self.target + step
        wanted = min(max(wanted, self._minimum), self._maximum)
        if wanted == self.target or per_s <= 0:
            return ()
        self._trial = _Measured(self.target, per_s)
        self._aim(wanted)
        why = f"Trying {_workers(wanted)} instead of {_with_rate(self._trial)}."
        return (WorkerCountDecision("WorkerCountTried", wanted, why, _facts(self._trial)),)

    def _judge(self, trial: _Measured, per_s: float, now: float) -> tuple[WorkerCountDecision, ...]:
        """Keep the number that was tried, or return to the previous one."""
        self._trial = None
        tried = _Measured(self.target, per_s)
        facts = _facts(tried) | {f"previous_{key}": one for key, one in _facts(trial).items()}
        changed = abs(self.target - trial.workers)
        share = self._rules.worth * changed * trial.per_s / trial.workers
        fewer = self.target < trial.workers
        # Compared with the share of an average worker before the trial.
        keep = trial.per_s - per_s < share if fewer else per_s - trial.per_s >= share
        if keep:
            self._retry_after_s = self._rules.retry_after_s
            self._step = None
            why = f"Keeping {_with_rate(tried)}, instead of {_with_rate(trial)}."
            kept = WorkerCountDecision("WorkerCountKept", self.target, why, facts)
            return (kept, *self._try(per_s))
        if changed > 1:
            self._step = max(1, changed // 4)
        else:
            self._step = 1
            self._down = not self._down
            self._rest_until = now + self._retry_after_s
            self._retry_after_s = min(2 * self._retry_after_s, self._rules.retry_after_max_s)
        self._aim(trial.workers)
        too = "fewer are too slow" if fewer else "more add too little"
        why = f"Back to {_with_rate(trial)}; {too}: {_with_rate(tried)}."
        return (WorkerCountDecision("WorkerCountReverted", trial.workers, why, facts),)

    def _aim(self, workers: int) -> None:
        self.target = workers
        self._settled_at = None


def _workers(number: int) -> str:
    return f"{number:,} worker{'' if number == 1 else 's'}"


def _with_rate(measured: _Measured) -> str:
    return f"{_workers(measured.workers)} with {measured.per_s:,.0f} records/s"


def _facts(measured: _Measured) -> dict[str, str]:
    return {"workers": str(measured.workers), "records_per_s": f"{measured.per_s:.1f}"}


def describe_range(minimum: int, maximum: int) -> str:
    """Return the numbers of workers as people write them: ``3`` or ``1:3``."""
    return str(maximum) if minimum == maximum else f"{minimum}:{maximum}"
