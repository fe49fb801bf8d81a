"""Decides the next action of a training task: compute, push, wait for a reply, or finish."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias


class PushOutcome(Enum):
    """The outcome of a push at the master; the names are those of ``edl.v1.PushOutcome``."""

    APPLIED = auto()
    ALREADY_APPLIED = auto()
    STALE = auto()
    REFUSED = auto()
    OUT_OF_ORDER = auto()
    INVALID = auto()


class AfterPush(Enum):
    """The next step after the reply to a push."""

    ADVANCE = auto()
    """The minibatches are in the model. Continue with the next one, if there is one."""
    RECOMPUTE = auto()
    """Compute the same minibatches again, from newer parameters."""
    DROP_TASK = auto()
    """Another worker has the task, or will have it. Forget it and lease another one."""
    RETURN_TASK = auto()
    """Worker and master disagree about the task's position. Hand the task back undone."""
    FAIL_TASK = auto()
    """The gradient is not finite. Another worker would get the same result."""


class Fetch(Enum):
    """The worker's needs from the master before the next computation."""

    NOTHING = auto()
    PARAMETERS = auto()
    PERMIT = auto()
    """A step permit together with the parameters to use it on (synchronous mode)."""


@dataclass(frozen=True, slots=True)
class PushDecision:
    """The next step after a push, and what to fetch before the next computation."""

    then: AfterPush
    fetch: Fetch = Fetch.NOTHING


def first_fetch(*, sync: bool) -> Fetch:
    """Return what a task needs before its first computation."""
    return Fetch.PERMIT if sync else Fetch.PARAMETERS


def requests_values(*, last: bool) -> bool:
    """Whether a push asks for newer parameters (and the next permit) in its reply.

    The last minibatch does not: its task needs no more parameters, and an unused permit would
    block the other workers.
    """
    return not last


def after_push(
    outcome: PushOutcome, *, last: bool, sync: bool, values_came: bool, permit_granted: bool
) -> PushDecision:
    """Judge the reply to a push.

    Args:
        outcome: how the master has judged the gradient.
        last: the task has no minibatch after this one.
        sync: gradients are computed under step permits.
        values_came: the reply brought newer parameters.
        permit_granted: the reply brought a step permit.
    """
    match outcome:
        case PushOutcome.APPLIED | PushOutcome.ALREADY_APPLIED:
            if last or not sync or permit_granted:
                # In asynchronous mode a reply without parameters means that none are newer.
                return PushDecision(AfterPush.ADVANCE)
            return PushDecision(AfterPush.ADVANCE, Fetch.PERMIT)
        case PushOutcome.STALE:
            arrived = permit_granted if sync else values_came
            return PushDecision(
                AfterPush.RECOMPUTE, Fetch.NOTHING if arrived else first_fetch(sync=sync)
            )
        case PushOutcome.REFUSED:
            return PushDecision(AfterPush.DROP_TASK)
        case PushOutcome.OUT_OF_ORDER:
            return PushDecision(AfterPush.RETURN_TASK)
        case PushOutcome.INVALID:
            return PushDecision(AfterPush.FAIL_TASK)


@dataclass(frozen=True, slots=True)
class Compute:
    """The action of computing the gradient of a minibatch, after fetching what it needs."""

    index: int
    fetch: Fetch


@dataclass(frozen=True, slots=True)
class Push:
    """The action of pushing the computed gradient of ``count`` minibatches from ``index`` on."""

    index: int
    count: int = 1


@dataclass(frozen=True, slots=True)
class AwaitReply:
    """The action of waiting for the reply to the push of these minibatches."""

    index: int
    count: int = 1


@dataclass(frozen=True, slots=True)
class FinishTask:
    """The end of the task: all its minibatches are in the model."""

    minibatches: int


Action: TypeAlias = Compute | Push | AwaitReply | FinishTask


class PushPipeline:
    """The actions by which one worker trains one task.

    The training loop reports events by ``on_…`` methods and asks ``next_action`` what to do.

    At most one push is in flight. With ``overlap`` the worker computes the next minibatch in the
    meantime, on values that lack that one gradient; the push of this gradient starts when the
    reply to the former push has arrived. So pushes are in order, and each minibatch is pushed
    until it is in the model, whatever the replies are. If a push has to be computed again, the
    gradient that was computed in the meantime is dropped, and the rest of the task runs without
    overlap: the next attempt is as fresh as possible, so bounded staleness cannot reject it
    forever.

    With ``local_steps`` the worker computes that many minibatches, each on the values that the
    one before has produced, and pushes them together; at the end of a task it pushes fewer.

    Args:
        first: index of the first minibatch that is not in the model yet.
        sync: gradients are computed under step permits.
        overlap: compute while a push is in flight; not in synchronous mode or with local steps.
        local_steps: minibatches of one push; 1 in synchronous mode.
    """

    def __init__(self, first: int, *, sync: bool, overlap: bool, local_steps: int = 1) -> None:
        if sync and (overlap or local_steps > 1):
            raise ValueError("a step permit is used once, on the newest values")
        if overlap and local_steps > 1:
            raise ValueError("local steps start from the values of the last reply")
        self._sync = sync
        self._overlap = overlap
        self._local_steps = local_steps
        self._applied = first
        self._in_flight = 0
        self._unpushed = 0
        self._end: int | None = None
        self._flushing = False
        self._awaits_rows = False
        self._fetch = first_fetch(sync=sync)

    @property
    def unpushed(self) -> int:
        """The number of minibatches that are computed and not pushed."""
        return self._unpushed

    @property
    def collects(self) -> bool:
        """Whether pushes are of several minibatches: work that a worker pushes before it leaves."""
        return self._local_steps > 1

    @property
    def overlap_is_on(self) -> bool:
        """Whether minibatches are computed while a push is in flight."""
        return self._overlap

    def set_end(self, count: int) -> None:
        """Set the number of the task's minibatches, before the last one is pushed."""
        self._end = count

    def flush(self) -> None:
        """Push what is computed next, even if it is of fewer minibatches than usual."""
        self._flushing = True

    def await_rows(self) -> None:
        """Wait for the reply in flight: it brings rows that the next minibatch needs."""
        self._awaits_rows = True

    def is_last(self, index: int) -> bool:
        """Whether the task has no minibatch after this one, as far as ``set_end`` has set it."""
        return self._end is not None and index + 1 >= self._end

    def next_action(self) -> Action:
        """Return the next action."""
        index = self._applied + self._in_flight + self._unpushed
        ended = self._end is not None and index >= self._end
        if self._in_flight:
            if self._unpushed or ended or self._awaits_rows or not self._overlap:
                return AwaitReply(self._applied, self._in_flight)
            return Compute(index, Fetch.NOTHING)
        if self._unpushed and (self._unpushed >= self._local_steps or ended or self._flushing):
            return Push(self._applied, self._unpushed)
        return FinishTask(self._applied) if ended else Compute(index, self._fetch)

    def on_computed(self) -> None:
        """Record that the minibatch of the last ``Compute`` has been computed."""
        self._unpushed += 1
        if not self._in_flight:
            self._fetch = Fetch.NOTHING

    def on_pushed(self) -> None:
        """Record that the push of the computed minibatches has started."""
        self._in_flight, self._unpushed = self._unpushed, 0
        self._flushing = False

    def on_reply(
        self, outcome: PushOutcome, *, values_came: bool, permit_granted: bool
    ) -> AfterPush:
        """Record the reply to the push in flight, and return what to do next."""
        last = self.is_last(self._applied + self._in_flight - 1)
        decision = after_push(
            outcome,
            last=last,
            sync=self._sync,
            values_came=values_came,
            permit_granted=permit_granted,
        )
        self._fetch = decision.fetch
        if decision.then is AfterPush.ADVANCE:
            self._applied += self._in_flight
            if self.collects and not values_came:
                # The values after local steps are no version of the master's.
                self._fetch = Fetch.PARAMETERS
        elif decision.then is AfterPush.RECOMPUTE:
            self._unpushed = 0
            self._overlap = False
        self._in_flight, self._awaits_rows = 0, False
        return decision.then
