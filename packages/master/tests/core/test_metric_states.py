"""Metric states add up, exactly and whatever the order."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from fakes.job_settings import job_settings
from hypothesis import given, settings
from hypothesis import strategies as st
from joined_job import WORKER, join_worker, lease

from edl_master.core import events as ev
from edl_master.core.job import JobStateMachine
from edl_master.core.metric_states import (
    Addable,
    MetricState,
    MetricStateMismatch,
    MetricStates,
    add_up,
)
from edl_master.core.settings import JobType

numbers = st.lists(st.integers(-1000, 1000).map(float), min_size=3, max_size=3)


def a_state(name: str, values: list[float], dtype: str = "float32") -> MetricState:
    return MetricState(name, (Addable(dtype, np.array(values, dtype)),))


@settings(deadline=None)
@given(tasks=st.lists(numbers, min_size=1, max_size=6), order=st.randoms())
def test_states_add_up_in_any_order(tasks: list[list[float]], order: Random) -> None:
    addends = [(a_state("auc", values), a_state("count", [1.0])) for values in tasks]
    order.shuffle(addends)
    cut = order.randrange(len(addends))
    auc, count = add_up([add_up(addends[:cut]), *addends[cut:]])
    np.testing.assert_array_equal(auc.variables[0].narrow, np.sum(tasks, axis=0))
    assert count.variables[0].narrow.tolist() == [len(tasks)]


@pytest.mark.parametrize(
    ("dtype", "one", "many", "total"),
    [
        ("float32", 1.0, float(1 << 24), float((1 << 24) + 4)),
        ("float16", 1.0, 2048.0, 2052.0),
        ("uint64", 1, 2**63, 2**63 + 4),
        ("int64", 1, 2**62, 2**62 + 4),
        ("bool", True, False, True),
    ],
)
def test_a_sum_loses_no_small_addend(dtype: str, one: float, many: float, total: float) -> None:
    """Four times one beside a number so large that the dtype's own sum would not change."""
    states = [(a_state("n", [value], dtype),) for value in (many, one, one, one, one)]
    (state,) = add_up(states)
    assert state.variables[0].narrow.dtype == dtype
    assert state.variables[0].narrow.tolist() == [total]


OTHERS = [a_state("auc", [1.0]), a_state("auc", [1.0, 2.0], "int64"), MetricState("auc", ())]


@pytest.mark.parametrize("other", OTHERS)
def test_states_of_other_shapes_are_the_model_files_fault(other: MetricState) -> None:
    first = (a_state("auc", [1.0, 2.0]),)
    with pytest.raises(MetricStateMismatch) as caught:
        add_up([first, (other,)])
    assert caught.value.failure.code == "MODEL_CONTRACT"
    assert "auc" in caught.value.failure.what
    job = an_evaluation(3)
    complete(job, first)
    complete(job, (other,))
    ending = job._outcome.ending
    assert ending is not None
    assert ending.failure == caught.value.failure


def an_evaluation(tasks: int) -> JobStateMachine:
    """An evaluation of a trained model."""
    return join_worker(
        JobStateMachine(job_settings(JobType.EVALUATE, records_per_task=4), (4 * tasks,))
    )


def complete(job: JobStateMachine, states: MetricStates) -> ev.TaskCompleted:
    held = lease(job)
    done = ev.TaskCompleted(WORKER, ev.HeldLease(held.task, held.token), 1, 0, 4, 4, states)
    job.handle(done, 0.0)
    return done


def test_what_comes_while_a_sum_is_computed_is_added_once() -> None:
    job = an_evaluation(4)
    for number in (1.0, 10.0):
        done = complete(job, (a_state("n", [number]),))
        job.handle(done, 0.0)  # the answer was lost
    addends = job.metric_addends
    complete(job, (a_state("n", [100.0]),))
    for _ in range(2):  # the second time, the addends are not there any more
        job.replace_metric_addends(addends, add_up(addends))
    complete(job, (a_state("n", [1000.0]),))
    (state,) = add_up(lease(job).metric_states)
    assert state.variables[0].narrow.tolist() == [1111.0]
