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
    """Begin to push what was computed: of so many minibatches from this one on."""

    index: int
    count: int = 1


@dataclass(frozen=True, slots=True)
class Settle:
    """Wait for the answer to the push that is under way, of these minibatches."""

    index: int
    count: int = 1


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

    With ``local_steps`` so many minibatches are computed, each on what the one before has made of
    the values, and pushed together; at the end of the task fewer.

    Args:
        first: index of the first minibatch that is not in the model yet.
        sync: gradients are computed under step slots.
        overlap: compute while a push is under way; not in synchronous mode or with local steps.
        local_steps: minibatches of a push; 1 in synchronous mode.
    """

    def __init__(self, first: int, *, sync: bool, overlap: bool, local_steps: int = 1) -> None:
        if sync and (overlap or local_steps > 1):
            raise ValueError("a step slot is used once, on the newest values")
        if overlap and local_steps > 1:
            raise ValueError("local steps begin with what the last push has brought")
        self._sync = sync
        self._overlap = overlap
        self._local_steps = local_steps
        self._settled = first
        self._under_way = 0
        self._computed = 0
        self._stop: int | None = None
        self._flushing = False
        self._lacking = False
        self._fetch = first_fetch(sync=sync)

    @property
    def settled(self) -> int:
        """How many of the task's minibatches are in the model."""
        return self._settled

    @property
    def waiting(self) -> int:
        """How many minibatches are computed and not pushed."""
        return self._computed

    @property
    def overlaps(self) -> bool:
        """Whether minibatches are computed while a push is under way."""
        return self._overlap

    def ends_at(self, count: int) -> None:
        """The task has so many minibatches; to be told before the last one is pushed."""
        self._stop = count

    def flush(self) -> None:
        """Push what is computed next, even if it is of fewer minibatches than usual."""
        self._flushing = True

    def lacks_rows(self) -> None:
        """What would be computed beside a push needs rows that are not here: its answer first."""
        self._lacking = True

    def is_last(self, index: int) -> bool:
        """Whether no minibatch comes after this one, as far as has been told."""
        return self._stop is not None and index + 1 >= self._stop

    def next(self) -> Step:
        """What to do now."""
        index = self._settled + self._under_way + self._computed
        ended = self._stop is not None and index >= self._stop
        if self._under_way:
            if self._computed or ended or self._lacking or not self._overlap:
                return Settle(self._settled, self._under_way)
            return Compute(index, Fetch.NOTHING)
        if self._computed and (self._computed >= self._local_steps or ended or self._flushing):
            return Push(self._settled, self._computed)
        return Finish(self._settled) if ended else Compute(index, self._fetch)

    def computed(self) -> None:
        """The minibatch that was to be computed is."""
        self._computed += 1
        if not self._under_way:
            self._fetch = Fetch.NOTHING

    def pushed(self) -> None:
        """The push of what was computed has begun."""
        self._under_way, self._computed = self._computed, 0
        self._flushing = False

    def answered(self, outcome: Outcome, *, values_came: bool, slot_granted: bool) -> Move:
        """The push that was under way has its answer; say what that means."""
        last = self.is_last(self._settled + self._under_way - 1)
        turn = after_push(
            outcome,
            last=last,
            sync=self._sync,
            values_came=values_came,
            slot_granted=slot_granted,
        )
        self._fetch = turn.fetch
        if turn.move is Move.NEXT:
            self._settled += self._under_way
            if self._local_steps > 1 and not values_came:
                # What local steps have made of the values is no version of the master's.
                self._fetch = Fetch.PARAMETERS
        elif turn.move is Move.AGAIN:
            self._computed = 0
            self._overlap = False
        self._under_way, self._lacking = 0, False
        return turn.move
