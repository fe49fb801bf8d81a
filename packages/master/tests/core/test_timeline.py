"""What workers did when, from leases and heartbeats."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl_master.core.identifiers import InstanceId, TaskKey, TaskType, Token, WorkerId
from edl_master.core.timeline import PhaseSpan, SpanOutcome, TaskSpan, Timeline

W0, W1 = WorkerId(0), WorkerId(1)
FIRST, SECOND = InstanceId("first"), InstanceId("second")


def task(number: int, type_: TaskType = TaskType.TRAINING) -> TaskKey:
    return TaskKey(type_, 1, number)


def tasks_of(timeline: Timeline) -> list[tuple[float, float, int, int, SpanOutcome]]:
    return [
        (span.at, span.seconds, span.worker, span.task.number, span.outcome)
        for span in timeline.take()
        if isinstance(span, TaskSpan)
    ]


def phases_of(timeline: Timeline) -> list[PhaseSpan]:
    return [span for span in timeline.take() if isinstance(span, PhaseSpan)]


def beat(
    timeline: Timeline,
    now: float,
    doing: str = "computing",
    instance: InstanceId = FIRST,
    worker: WorkerId = W0,
    **totals: float,
) -> None:
    timeline.record_heartbeat(now, worker, instance, doing, totals)


def round_phases(phases: Mapping[str, float]) -> dict[str, float]:
    return {phase: round(spent, 6) for phase, spent in phases.items()}


def test_a_task_that_was_leased_early_begins_when_the_one_before_has_ended() -> None:
    timeline = Timeline(100.0)
    timeline.record_lease(100.0, W0, FIRST, task(0), Token(1))
    timeline.record_lease(101.0, W0, FIRST, task(1), Token(2))
    timeline.record_end(104.0, W0, task(0), Token(1), SpanOutcome.DONE)
    timeline.record_end(109.0, W0, task(1), Token(2), SpanOutcome.DONE)
    assert tasks_of(timeline) == [
        (100.0, 4.0, 0, 0, SpanOutcome.DONE),
        (104.0, 5.0, 0, 1, SpanOutcome.DONE),
    ]
    assert timeline.take() == []


def test_a_task_that_is_leased_again_was_lost_by_its_former_holder() -> None:
    timeline = Timeline(0.0)
    timeline.record_lease(0.0, W0, FIRST, task(0), Token(1))
    timeline.record_lease(3.0, W1, FIRST, task(0), Token(2))
    timeline.record_end(
        4.0, W0, task(0), Token(1), SpanOutcome.DONE
    )  # of the former holder: too late
    timeline.record_end(5.0, W1, task(0), Token(2), SpanOutcome.DONE)
    assert tasks_of(timeline) == [
        (0.0, 3.0, 0, 0, SpanOutcome.LOST),
        (3.0, 2.0, 1, 0, SpanOutcome.DONE),
    ]


def test_a_grant_that_is_told_late_does_not_replace_a_later_one() -> None:
    timeline = Timeline(0.0)
    timeline.record_lease(1.0, W1, FIRST, task(0), Token(2))
    timeline.record_lease(1.0, W0, FIRST, task(0), Token(1))
    timeline.record_end(2.0, W1, task(0), Token(2), SpanOutcome.DONE)
    assert tasks_of(timeline) == [(1.0, 1.0, 1, 0, SpanOutcome.DONE)]


def test_a_worker_says_nothing_about_a_task_of_another_one() -> None:
    timeline = Timeline(0.0)
    timeline.record_lease(0.0, W0, FIRST, task(0), Token(1))
    timeline.record_end(1.0, W1, task(0), Token(1), SpanOutcome.RETURNED)  # tokens can be guessed
    timeline.record_end(2.0, W0, task(0), Token(1), SpanOutcome.DONE)
    assert tasks_of(timeline) == [(0.0, 2.0, 0, 0, SpanOutcome.DONE)]


def test_an_instance_that_ends_loses_what_it_holds_and_no_more() -> None:
    timeline = Timeline(0.0)
    timeline.record_lease(0.0, W0, FIRST, task(0), Token(1))
    timeline.record_lease(0.0, W1, FIRST, task(1), Token(2))
    timeline.record_exit(2.0, W0, SECOND)
    assert tasks_of(timeline) == []
    timeline.record_exit(2.0, W0, FIRST)
    assert tasks_of(timeline) == [(0.0, 2.0, 0, 0, SpanOutcome.LOST)]


def test_what_goes_on_is_shown_as_unfinished_and_goes_on() -> None:
    timeline = Timeline(0.0)
    beat(timeline, 0.0)
    beat(timeline, 0.5, compute=0.4)
    timeline.record_lease(0.0, W0, FIRST, task(0), Token(1))
    for _ in range(2):
        tasks, phases = timeline.unfinished_spans(2.0)
        assert tasks == TaskSpan(0.0, 2.0, W0, task(0), SpanOutcome.UNFINISHED)
        assert isinstance(phases, PhaseSpan)
        assert round_phases(phases.phases) == {"compute": 0.4, "other": 0.1}
    timeline.record_end(3.0, W0, task(0), Token(1), SpanOutcome.DONE)
    assert tasks_of(timeline) == [(0.0, 3.0, 0, 0, SpanOutcome.DONE)]


def test_time_of_a_worker_is_divided_into_phases() -> None:
    timeline = Timeline(0.0)
    beat(timeline, 10.0, "loading")
    beat(timeline, 10.5, "loading")
    beat(timeline, 11.0, "loading")
    beat(timeline, 11.5, "waiting")
    beat(timeline, 12.0, "computing", input=0.125, compute=0.25)
    beat(timeline, 12.5, "exchanging", input=0.25, compute=0.5, exchange=0.25)
    beat(timeline, 13.0, "exchanging", input=0.25, compute=0.5, exchange=0.75)
    first, second, third = phases_of(timeline)
    assert (first.at, first.seconds, round_phases(first.phases)) == (10.0, 1.0, {"loading": 1.0})
    assert (second.at, second.seconds) == (11.0, 1.0)
    assert round_phases(second.phases) == {
        "input": 0.125, "compute": 0.25, "idle": 0.3125, "other": 0.3125,
    }  # fmt: skip
    # A part of these steps was before the span: what does not fit is in the next one.
    assert (third.at, third.seconds) == (12.0, 1.0)
    assert round_phases(third.phases) == {
        "input": 0.111111,
        "compute": 0.222222,
        "exchange": 0.666667,
    }


def test_a_step_that_takes_long_is_no_other_work() -> None:
    timeline = Timeline(0.0)
    timeline.record_lease(0.0, W0, FIRST, task(0), Token(1))
    beat(timeline, 0.0)
    for half in range(1, 40):
        beat(timeline, half / 2)
    assert phases_of(timeline) == []
    beat(timeline, 20.0, compute=19.0, input=1.0)
    (span,) = phases_of(timeline)
    assert (span.at, span.seconds) == (0.0, 20.0)
    assert round_phases(span.phases) == {"compute": 19.0, "input": 1.0}


def test_work_without_steps_is_other_work() -> None:
    timeline = Timeline(0.0)
    timeline.record_lease(0.0, W0, FIRST, task(0, TaskType.EVALUATION), Token(1))
    beat(timeline, 0.0)
    beat(timeline, 0.5)
    beat(timeline, 1.0)
    (span,) = phases_of(timeline)
    assert round_phases(span.phases) == {"other": 1.0}


def test_what_a_worker_has_counted_before_this_master_is_not_counted_again() -> None:
    timeline = Timeline(0.0)
    beat(timeline, 0.0, compute=500.0)
    beat(timeline, 1.0, compute=501.0)
    (span,) = phases_of(timeline)
    assert round_phases(span.phases) == {"compute": 1.0}


def test_a_new_instance_counts_from_its_first_heartbeat() -> None:
    timeline = Timeline(0.0)
    beat(timeline, 0.0, compute=5.0)
    beat(timeline, 0.5, compute=5.5)
    beat(timeline, 8.0, "loading", SECOND)
    beat(timeline, 9.0, "loading", SECOND)
    first, second = phases_of(timeline)
    assert (first.at, first.seconds, round_phases(first.phases)) == (0.0, 0.5, {"compute": 0.5})
    assert (second.at, second.seconds, round_phases(second.phases)) == (8.0, 1.0, {"loading": 1.0})


def test_spans_of_phases_get_longer_with_the_job_and_with_its_workers() -> None:
    timeline = Timeline(0.0)
    for now in range(100_000, 101_000):
        beat(timeline, float(now))
    assert 4 <= len(phases_of(timeline)) <= 5
    many = Timeline(0.0)
    for now in range(101):
        for worker in range(200):
            beat(many, float(now), worker=WorkerId(worker))
    assert len(phases_of(many)) == 200 * 5


def test_numbers_that_make_no_sense_do_no_harm() -> None:
    timeline = Timeline(0.0)
    beat(timeline, 5.0)
    beat(timeline, 4.0, compute=float("nan"))
    beat(timeline, 7.0, compute=float("inf"), input=-3.0)
    (span,) = phases_of(timeline)
    assert (span.seconds, round_phases(span.phases)) == (2.0, {"other": 2.0})


def test_a_disk_that_is_stuck_costs_spans_and_no_memory() -> None:
    timeline = Timeline(0.0)
    for number in range(50_003):
        timeline.record_lease(float(number), W0, FIRST, task(number), Token(number + 1))
        timeline.record_end(number + 0.5, W0, task(number), Token(number + 1), SpanOutcome.DONE)
    assert (len(timeline.take()), timeline.dropped) == (50_000, 3)


@given(
    st.lists(
        st.tuples(
            st.floats(0.01, 3.0),
            st.sampled_from(["computing", "exchanging", "waiting", "loading", ""]),
            st.floats(0.0, 2.0),
            st.floats(0.0, 2.0),
        ),
        max_size=60,
    )
)
def test_spans_follow_each_other_and_phases_add_up(
    beats: list[tuple[float, str, float, float]],
) -> None:
    timeline = Timeline(0.0)
    now, compute, exchange = 0.0, 0.0, 0.0
    beat(timeline, now)
    for passed, doing, more_compute, more_exchange in beats:
        now, compute, exchange = now + passed, compute + more_compute, exchange + more_exchange
        beat(timeline, now, doing, compute=compute, exchange=exchange)
    timeline.record_exit(now, W0, FIRST)
    spans = phases_of(timeline)
    end = 0.0
    for span in spans:
        assert span.at == pytest.approx(end)
        assert sum(span.phases.values()) == pytest.approx(span.seconds)
        assert min(span.phases.values()) >= 0
        end = span.at + span.seconds
    assert end == pytest.approx(now)
    counted = sum(s.phases.get("compute", 0.0) + s.phases.get("exchange", 0.0) for s in spans)
    assert counted <= compute + exchange + 1e-6
