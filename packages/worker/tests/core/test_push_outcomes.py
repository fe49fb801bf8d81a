"""What follows each answer to a push, crossed over all situations."""

from __future__ import annotations

import itertools

import pytest

from edl_worker.core.push_pipeline import (
    AfterPush,
    Fetch,
    PushDecision,
    PushOutcome,
    after_push,
    first_fetch,
    requests_values,
)

SITUATIONS = [
    {"last": last, "sync": sync, "values_came": values, "permit_granted": permit}
    for last, sync, values, permit in itertools.product((False, True), repeat=4)
]


@pytest.mark.parametrize("outcome", [PushOutcome.APPLIED, PushOutcome.ALREADY_APPLIED])
@pytest.mark.parametrize("situation", SITUATIONS)
def test_what_is_in_the_model_is_never_computed_again(
    outcome: PushOutcome, situation: dict[str, bool]
) -> None:
    assert after_push(outcome, **situation).then is AfterPush.ADVANCE


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_stale_gradient_is_computed_again_from_something_newer(
    situation: dict[str, bool],
) -> None:
    decision = after_push(PushOutcome.STALE, **situation)
    assert decision.then is AfterPush.RECOMPUTE
    if situation["sync"]:
        assert (decision.fetch is Fetch.NOTHING) == situation["permit_granted"]
    else:
        assert (decision.fetch is Fetch.NOTHING) == situation["values_came"]


@pytest.mark.parametrize("situation", [s for s in SITUATIONS if s["sync"] and not s["last"]])
def test_the_next_minibatch_of_a_synchronous_task_waits_for_a_permit(
    situation: dict[str, bool],
) -> None:
    fetch = after_push(PushOutcome.APPLIED, **situation).fetch
    assert fetch is (Fetch.NOTHING if situation["permit_granted"] else Fetch.PERMIT)


@pytest.mark.parametrize("situation", [s for s in SITUATIONS if s["last"] or not s["sync"]])
def test_nothing_is_fetched_where_nothing_is_needed(situation: dict[str, bool]) -> None:
    assert after_push(PushOutcome.APPLIED, **situation) == PushDecision(
        AfterPush.ADVANCE, Fetch.NOTHING
    )


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize(
    ("outcome", "then"),
    [
        (PushOutcome.REFUSED, AfterPush.DROP_TASK),
        (PushOutcome.OUT_OF_ORDER, AfterPush.RETURN_TASK),
        (PushOutcome.INVALID, AfterPush.FAIL_TASK),
    ],
)
def test_the_task_ends_here(
    outcome: PushOutcome, then: AfterPush, situation: dict[str, bool]
) -> None:
    assert after_push(outcome, **situation) == PushDecision(then)


def test_the_last_minibatch_asks_for_no_permit_that_would_stay_unused() -> None:
    assert not requests_values(last=True)
    assert requests_values(last=False)


def test_a_task_begins_with_the_newest_parameters() -> None:
    assert first_fetch(sync=False) is Fetch.PARAMETERS
    assert first_fetch(sync=True) is Fetch.PERMIT
