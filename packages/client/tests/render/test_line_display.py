"""Progress as lines: enough to see, no noise."""

from __future__ import annotations

import time

import pytest

from edl.core.job_status import JobEvent, JobState, JobStatus
from edl.core.options import Verb
from edl.render import line_display


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_a_line_that_says_nothing_new_comes_seldom(clock: list[float]) -> None:
    lines: list[str] = []
    display = line_display.PlainDisplay(5.0, lines.append)
    starting = JobStatus("job", Verb.TRAIN, JobState.STARTING, workers_max=2)
    for _ in range(60):
        display.update(starting)
        clock[0] += 1.0
    assert len(lines) == 2
    assert lines[0] == lines[1]


def test_news_come_every_few_seconds_and_changes_of_state_at_once(clock: list[float]) -> None:
    lines: list[str] = []
    display = line_display.PlainDisplay(5.0, lines.append)
    for second in range(11):
        display.update(
            JobStatus("job", Verb.TRAIN, JobState.RUNNING, records_done=second, records_total=20)
        )
        clock[0] += 1.0
    assert len(lines) == 3
    display.update(JobStatus("job", Verb.TRAIN, JobState.FINISHING))
    assert len(lines) == 4


def test_a_day_of_progress_and_evaluations_stays_readable(clock: list[float]) -> None:
    lines: list[str] = []
    display = line_display.PlainDisplay(5.0, lines.append)
    for at in range(0, 24 * 3600, 20):
        display.show_event(JobEvent(at, "", at, "EvaluationEnded", "info", "accuracy 0.9"))
        display.update(
            JobStatus("job", Verb.TRAIN, JobState.RUNNING, records_done=at, records_total=86400)
        )
        clock[0] += 20.0
        if at == 200:
            assert len([line for line in lines if "accuracy" in line]) == 11, "the first all show"
    assert 300 < len(lines) < 600, "of 8,640"


def test_warnings_always_show(clock: list[float]) -> None:
    lines: list[str] = []
    display = line_display.PlainDisplay(5.0, lines.append)
    for number in range(100):
        display.show_event(JobEvent(number, "", 0.0, "TaskRetried", "warning", f"task {number}"))
    assert len(lines) == 100
