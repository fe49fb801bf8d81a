"""What follows each answer to a push, crossed over all situations."""

from __future__ import annotations

import itertools

import pytest

from edl_worker.core.push_pipeline import (
    Fetch,
    Move,
    Outcome,
    Turn,
    after_push,
    first_fetch,
    wants_values,
)

SITUATIONS = [
    {"last": last, "sync": sync, "values_came": values, "slot_granted": slot}
    for last, sync, values, slot in itertools.product((False, True), repeat=4)
]


@pytest.mark.parametrize("outcome", [Outcome.APPLIED, Outcome.ALREADY_APPLIED])
@pytest.mark.parametrize("situation", SITUATIONS)
def test_what_is_in_the_model_is_never_computed_again(
    outcome: Outcome, situation: dict[str, bool]
) -> None:
    assert after_push(outcome, **situation).move is Move.NEXT


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_stale_gradient_is_computed_again_from_something_newer(
    situation: dict[str, bool],
) -> None:
    turn = after_push(Outcome.STALE, **situation)
    assert turn.move is Move.AGAIN
    if situation["sync"]:
        assert (turn.fetch is Fetch.NOTHING) == situation["slot_granted"]
    else:
        assert (turn.fetch is Fetch.NOTHING) == situation["values_came"]


@pytest.mark.parametrize("situation", [s for s in SITUATIONS if s["sync"] and not s["last"]])
def test_the_next_minibatch_of_a_synchronous_task_waits_for_a_slot(
    situation: dict[str, bool],
) -> None:
    fetch = after_push(Outcome.APPLIED, **situation).fetch
    assert fetch is (Fetch.NOTHING if situation["slot_granted"] else Fetch.SLOT)


@pytest.mark.parametrize("situation", [s for s in SITUATIONS if s["last"] or not s["sync"]])
def test_nothing_is_fetched_where_nothing_is_needed(situation: dict[str, bool]) -> None:
    assert after_push(Outcome.APPLIED, **situation) == Turn(Move.NEXT, Fetch.NOTHING)


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize(
    ("outcome", "move"),
    [
        (Outcome.REFUSED, Move.DROP),
        (Outcome.OUT_OF_ORDER, Move.HAND_BACK),
        (Outcome.INVALID, Move.FAIL),
    ],
)
def test_the_task_ends_here(outcome: Outcome, move: Move, situation: dict[str, bool]) -> None:
    assert after_push(outcome, **situation) == Turn(move)


def test_the_last_minibatch_asks_for_no_slot_that_nobody_would_use() -> None:
    assert not wants_values(last=True)
    assert wants_values(last=False)


def test_a_task_begins_with_the_newest_parameters() -> None:
    assert first_fetch(sync=False) is Fetch.PARAMETERS
    assert first_fetch(sync=True) is Fetch.SLOT
