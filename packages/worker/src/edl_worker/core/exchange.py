"""What to do next in a training task: the answers of the parameter plane, judged."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


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
