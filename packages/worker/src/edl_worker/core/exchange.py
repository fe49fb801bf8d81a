"""What to do next in a training task: minibatches in order, and the plane's answers, judged."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias


class Outcome(Enum):
    """What became of a push, in the words of ``edl.v1.PushOutcome``."""

    APPLIED = auto()
    ALREADY_APPLIED = auto()
    STALE = auto()
    REFUSED = auto()
    OUT_OF_ORDER = auto()
    INVALID = auto()


class Move(Enum):
    """What to do after a push."""

    NEXT = auto()
    """The minibatch is in the model; go on with the one after it, if there is one."""
    AGAIN = auto()
    """Compute the same minibatch again, from newer parameters."""
    DROP = auto()
    """Somebody else has the task, or will have it: forget it and ask for another."""
    HAND_BACK = auto()
    """Worker and master disagree about where the task stands: hand it back undone."""
    FAIL = auto()
    """The gradient is not finite; trying elsewhere cannot help."""


class Fetch(Enum):
    """What is needed from the master before the next computation."""

    NOTHING = auto()
    PARAMETERS = auto()
    SLOT = auto()
    """Parameters together with a step slot (synchronous mode)."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A decision: the move, and what to fetch first when something is computed next."""

    move: Move
    fetch: Fetch = Fetch.NOTHING


def first_fetch(*, sync: bool) -> Fetch:
    """What a task needs before its first computation."""
    return Fetch.SLOT if sync else Fetch.PARAMETERS


def wants_values(*, last: bool) -> bool:
    """Whether a push asks to be answered with newer parameters (and the next slot).

    Not for the last minibatch: its task needs none any more, and a step slot that nobody uses
    would keep the others waiting.
    """
    return not last


def after_push(
    outcome: Outcome, *, last: bool, sync: bool, values_came: bool, slot_granted: bool
) -> Turn:
    """Judge the answer to a push.

    Args:
        outcome: what became of the gradient.
        last: no minibatch comes after this one in the task.
        sync: gradients are computed under step slots.
        values_came: the answer brought newer parameters.
        slot_granted: the answer brought a step slot.
    """
    match outcome:
        case Outcome.APPLIED | Outcome.ALREADY_APPLIED:
            if last or not sync or slot_granted:
                # Asynchronously no newer parameters means that there are none.
                return Turn(Move.NEXT)
            return Turn(Move.NEXT, Fetch.SLOT)
        case Outcome.STALE:
            if sync:
                return Turn(Move.AGAIN, Fetch.NOTHING if slot_granted else Fetch.SLOT)
            return Turn(Move.AGAIN, Fetch.NOTHING if values_came else Fetch.PARAMETERS)
        case Outcome.REFUSED:
            return Turn(Move.DROP)
        case Outcome.OUT_OF_ORDER:
            return Turn(Move.HAND_BACK)
        case Outcome.INVALID:
            return Turn(Move.FAIL)


@dataclass(frozen=True, slots=True)
class Compute:
    """Compute the gradient of a minibatch, after fetching what it needs."""

    index: int
    fetch: Fetch


@dataclass(frozen=True, slots=True)
class Push:
    """Begin to push the gradient that was computed last."""

    index: int


@dataclass(frozen=True, slots=True)
class Settle:
    """Wait for the answer to the push that is under way."""

    index: int


@dataclass(frozen=True, slots=True)
class Finish:
    """All minibatches of the task are in the model."""

    minibatches: int


Step: TypeAlias = Compute | Push | Settle | Finish


class Course:
    """The way of one holder through one task. Facts come in by methods; ``next`` is the decision.

    At most one push is under way. With ``overlap`` the next minibatch is computed meanwhile, on
    values that lack that one gradient; its own push begins when the answer is there. So pushes
    are in order and each minibatch is pushed until it is in the model, whatever the answers are.
    A gradient that was computed meanwhile is dropped when the one before it has to be computed
    again; from then on nothing overlaps in this task, so that the next try is as fresh as
    it can be and bounded staleness cannot reject for ever.

    Args:
        first: index of the first minibatch that is not in the model yet.
        sync: gradients are computed under step slots.
        overlap: compute while a push is under way; not in synchronous mode.
    """

    def __init__(self, first: int, *, sync: bool, overlap: bool) -> None:
        if sync and overlap:
            raise ValueError("a step slot is used on the newest values")
        self._sync = sync
        self._overlap = overlap
        self._settled = first
        self._under_way = False
        self._computed = False
        self._stop: int | None = None
        self._fetch = first_fetch(sync=sync)

    @property
    def settled(self) -> int:
        """How many of the task's minibatches are in the model."""
        return self._settled

    @property
    def next_index(self) -> int:
        """The minibatch that is computed next, or whose gradient waits to be pushed."""
        return self._settled + self._under_way

    @property
    def overlaps(self) -> bool:
        """Whether minibatches are computed while a push is under way."""
        return self._overlap

    def ends_at(self, count: int) -> None:
        """The task has so many minibatches; to be told before the last one is pushed."""
        self._stop = count

    def is_last(self, index: int) -> bool:
        """Whether no minibatch comes after this one, as far as has been told."""
        return self._stop is not None and index + 1 >= self._stop

    def next(self) -> Step:
        """What to do now."""
        index = self.next_index
        ended = self._stop is not None and index >= self._stop
        if self._under_way:
            if self._computed or ended or not self._overlap:
                return Settle(self._settled)
            return Compute(index, Fetch.NOTHING)
        if self._computed:
            return Push(index)
        return Finish(self._settled) if ended else Compute(index, self._fetch)

    def computed(self) -> None:
        """The gradient that was to be computed is there."""
        self._computed = True
        if not self._under_way:
            self._fetch = Fetch.NOTHING

    def pushed(self) -> None:
        """The push of the gradient has begun."""
        self._computed = False
        self._under_way = True

    def answered(self, outcome: Outcome, *, values_came: bool, slot_granted: bool) -> Move:
        """The push that was under way has its answer; say what that means."""
        turn = after_push(
            outcome,
            last=self.is_last(self._settled),
            sync=self._sync,
            values_came=values_came,
            slot_granted=slot_granted,
        )
        self._under_way = False
        self._fetch = turn.fetch
        if turn.move is Move.NEXT:
            self._settled += 1
        elif turn.move is Move.AGAIN:
            self._computed = False
            self._overlap = False
        return turn.move
