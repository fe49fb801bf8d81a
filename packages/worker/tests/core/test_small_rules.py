"""Back-off, prefetching and names of variables."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl_worker.core import backoff, prefetch_policy, variable_names


@given(st.floats(0, 1, exclude_max=True))
def test_waits_grow_to_about_a_second_and_no_further(random: float) -> None:
    waits = list(itertools.islice(backoff.delays(lambda: random), 12))
    assert waits == sorted(waits)
    assert 0 < waits[0] <= 2 * backoff.FIRST_DELAY_S
    assert waits[-1] == waits[-2] <= 1.25 * backoff.MAX_DELAY_S


@pytest.mark.parametrize(
    ("done", "expected", "step_s", "due"),
    [
        (0, 64, 0.1, False),
        (54, 64, 0.1, True),
        (53, 64, 0.1, False),
        (63, 64, 0.5, True),
        (0, 64, 0.001, True),  # the whole task is shorter than the lead
        (70, 64, 9.0, True),  # more minibatches than expected: any moment now
        (0, 64, None, False),  # the speed is not known yet
        (63, 64, None, True),
    ],
)
def test_the_next_lease_is_asked_for_shortly_before_it_is_needed(
    done: int, expected: int, step_s: float | None, due: bool
) -> None:
    assert prefetch_policy.is_due(done=done, expected=expected, step_s=step_s, lead_s=1.0) is due


def test_a_range_that_does_not_divide_evenly_has_one_more_minibatch() -> None:
    assert prefetch_policy.expected_minibatches(64, 8) == 8
    assert prefetch_policy.expected_minibatches(65, 8) == 9


@given(st.lists(st.sampled_from(["a/kernel", "a/bias", "b"])))
def test_names_are_unique_and_say_the_path(paths: list[str]) -> None:
    found = variable_names.unique(paths)
    assert len(set(found)) == len(found)
    assert [name.split("#")[0] for name in found] == paths
    assert variable_names.unique(paths) == found


def test_stored_names_are_found_by_name_whatever_their_order() -> None:
    assert variable_names.match(["b", "a"], ["a", "b", "c"]) == {"a": "a", "b": "b"}


def test_shifted_layer_counters_are_seen_through() -> None:
    wanted = ["dense_2/kernel", "dense_2/bias", "dense_3/kernel", "dense_3/bias"]
    stored = ["dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"]
    assert variable_names.match(wanted, stored) == dict(zip(wanted, stored, strict=True))


@pytest.mark.parametrize(
    "stored", [["dense/kernel"], ["conv/kernel", "conv/bias"], ["dense/bias", "dense/kernel_1"]]
)
def test_another_model_is_not_matched(stored: list[str]) -> None:
    assert variable_names.match(["dense_1/kernel", "dense_1/bias"], stored) is None
