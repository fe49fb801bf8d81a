"""Where workers' time went, over the life of a job: nothing is lost when buckets grow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl_master.core.identifiers import TaskKey, TaskType, WorkerId
from edl_master.core.timeline import PhaseSpan, Span, SpanOutcome, TaskSpan
from edl_master.core.timeline_summary import PHASES, TimelineSummary, WorkerTimes

W0, W1 = WorkerId(0), WorkerId(1)
TASK = TaskKey(TaskType.TRAINING, 1, 0)


def phases(at: float, worker: WorkerId = W0, **spent: float) -> PhaseSpan:
    return PhaseSpan(at, sum(spent.values()), worker, spent)


def seconds_by_phase(worker: WorkerTimes, width_s: float) -> list[float]:
    """Seconds by phase that the buckets hold."""
    return [width_s * sum(column) for column in zip(*worker.shares, strict=True)]


spans_of_phases = st.builds(
    lambda at, worker, spent: PhaseSpan(at, sum(spent.values()), WorkerId(worker), spent),
    st.floats(1.7e9, 1.7e9 + 1e6),
    st.integers(0, 3),
    st.dictionaries(st.sampled_from(PHASES), st.floats(0.001, 5000), min_size=1),
)


@given(st.lists(spans_of_phases, min_size=1, max_size=40))
def test_the_buckets_hold_all_time_that_was_heard_of(spans: list[PhaseSpan]) -> None:
    summary = TimelineSummary()
    for span in spans:
        summary.add([span])
    times = summary.times()
    assert times.buckets <= 300
    assert {each.worker for each in times.workers} == {span.worker for span in spans}
    for each in times.workers:
        own = [span for span in spans if span.worker == each.worker]
        heard = [sum(span.phases.get(phase, 0.0) for span in own) for phase in PHASES]
        assert list(each.seconds.values()) == pytest.approx(heard)
        assert seconds_by_phase(each, times.width_s) == pytest.approx(heard, abs=1e-3)
        assert each.first >= 0
        assert each.first + len(each.shares) <= times.buckets
        assert times.at <= min(span.at for span in own)


def test_a_span_is_divided_among_the_buckets_that_it_lies_in() -> None:
    summary = TimelineSummary()
    summary.add([phases(100.5, compute=1.5), phases(100.25, W1, idle=0.5)])
    times = summary.times()
    assert (times.at, times.width_s, times.buckets) == (100.0, 1.0, 2)
    first, second = times.workers
    assert [shares[0] for shares in first.shares] == pytest.approx([0.5, 1.0])
    assert [shares[-1] for shares in second.shares] == pytest.approx([0.5]), "its own buckets only"


def test_buckets_double_in_width_when_there_are_too_many() -> None:
    summary = TimelineSummary()
    summary.add(phases(float(second), compute=1.0) for second in range(300))
    assert (summary.times().width_s, summary.times().buckets) == (1.0, 300)
    summary.add([phases(300.0, input=1.0)])
    times = summary.times()
    assert (times.width_s, times.buckets) == (2.0, 151)
    assert times.workers[0].shares[0][0] == pytest.approx(1.0)
    summary.add([phases(-1000.0, input=1.0)])
    assert summary.times().at <= -1000.0, "spans may come in any order"


def test_many_workers_share_the_room() -> None:
    summary = TimelineSummary()
    for worker in range(1000):
        summary.add([phases(0.0, WorkerId(worker), compute=1000.0)])
    times = summary.times(max_workers=1000)
    assert sum(len(each.shares) for each in times.workers) <= 60_000
    assert times.buckets > 30


def test_those_that_waited_most_are_shown() -> None:
    summary = TimelineSummary()
    for worker in range(5):
        summary.add([phases(0.0, WorkerId(worker), other=1.0, input=1.0 + worker % 3)])
    times = summary.times(max_workers=2)
    assert [each.worker for each in times.workers] == [1, 2]
    assert times.left_out == 3


def test_tasks_are_counted_by_outcome_and_need_times_to_be_shown() -> None:
    summary = TimelineSummary()
    spans: list[Span] = [
        TaskSpan(0.0, 1.0, W0, TASK, outcome)
        for outcome in (SpanOutcome.DONE, SpanOutcome.LOST, SpanOutcome.DONE)
    ]
    summary.add(spans)
    assert summary.times().workers == ()
    summary.add([phases(0.0, compute=1.0, walking=1.0)])
    (times,) = summary.times().workers
    assert times.tasks == {SpanOutcome.DONE: 2, SpanOutcome.LOST: 1}
    assert times.seconds["other"] == 1.0, "a phase of a later release"
