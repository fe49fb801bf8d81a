"""A job is tracked completely, each thing once, and whatever the tracker does, the job goes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edl.core.job_status import JobState, JobStatus
from edl.core.options import Verb
from edl.core.tracking import KerasModel, Measurement, RunEnd
from edl.ports.experiment_tracker import TrackerUnavailable
from edl.ports.job_backend import StatusReport
from edl.use_cases import job_tracking
from edl.use_cases.job_tracking import BackgroundTracking, JobTracking
from edl_proto.errors import EdlError, ErrorCode


class FakeTracker:
    """A run in memory.

    ``answers`` says of each call of ``open`` whether it is answered, ``takes`` the same of each
    call of ``log_metrics``.
    """

    def __init__(self, answers: Sequence[bool] = (), takes: Sequence[bool] = ()) -> None:
        self.answers = list(answers)
        self.takes = list(takes)
        self.parameters: dict[str, str] = {}
        self.metrics: list[Measurement] = []
        self.models: list[int] = []
        self.ends: list[RunEnd] = []

    def open(self, job: str, submitted_at: str, started_at_s: float) -> str:
        if self.answers and not self.answers.pop(0):
            raise TrackerUnavailable("no connection")
        return f"tracker/{job}"

    def log_parameters(self, parameters: Mapping[str, str]) -> None:
        self.parameters.update(parameters)

    def last_steps(self) -> Mapping[str, int]:
        return {one.name: one.step for one in self.metrics}

    def log_metrics(self, measurements: Sequence[Measurement]) -> None:
        if self.takes and not self.takes.pop(0):
            raise TrackerUnavailable("no connection")
        self.metrics.extend(measurements)

    def has_model(self, version: int) -> bool:
        return version in self.models

    def log_model(self, model: KerasModel) -> None:
        self.models.append(model.version)

    def end(self, end: RunEnd, at_s: float) -> None:
        self.ends.append(end)


class FakeBackend:
    """Gives one status after the other; the last one stays."""

    def __init__(self, *reports: StatusReport) -> None:
        self.reports = list(reports)

    def status(self, name: str, *, ask: bool = True) -> StatusReport:
        return self.reports.pop(0) if len(self.reports) > 1 else self.reports[0]

    def close(self) -> None:
        pass


def report(state: JobState, steps: int, started: bool = True) -> StatusReport:
    points = [{"step": step, "at_s": float(step), "value": 1 / step} for step in range(1, steps)]
    details: dict[str, Any] = {
        "started_at": "2023-11-14T22:13:20Z" if started else "",
        "curves": [{"name": "loss", "points": points}],
    }
    status = JobStatus("digits", Verb.TRAIN, state, output="out", seconds=9.0)
    description = {"name": "digits", "submitted_at": "then"}
    return StatusReport(
        status, True, "here", 0.0, "", lambda: "", lambda: description, lambda: details
    )


RUNNING, OVER = report(JobState.RUNNING, 3), report(JobState.SUCCEEDED, 6)


@contextmanager
def open_model(output: str) -> Iterator[KerasModel]:
    yield KerasModel(Path(output), 5, {})


@contextmanager
def no_model(output: str) -> Iterator[KerasModel]:
    raise EdlError(ErrorCode.MODEL_NOT_FOUND, "the trained model has no Keras form", where=output)
    yield


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_tracking, "POLL_S", 0.0)


def track(
    tracker: FakeTracker, *reports: StatusReport, opening: Any = open_model, give_up_s: float = 60
) -> list[str]:
    said: list[str] = []
    backend: Any = FakeBackend(*reports)
    JobTracking(backend, "digits", tracker, opening, said.append).run(give_up_s)
    return said


def test_a_job_is_tracked_from_its_first_step_to_its_end() -> None:
    tracker = FakeTracker()
    said = track(tracker, report(JobState.STARTING, 0, started=False), RUNNING, OVER)
    assert said == ["digits is tracked: tracker/digits"]
    assert [one.step for one in tracker.metrics] == [1, 2, 3, 4, 5]
    assert tracker.parameters == {"name": "digits"}
    assert (tracker.models, tracker.ends) == ([5], [RunEnd.FINISHED])


def test_tracking_again_sends_only_what_is_missing() -> None:
    tracker = FakeTracker()
    track(tracker, OVER)
    sent = list(tracker.metrics)
    track(tracker, OVER)
    assert (tracker.metrics, tracker.models) == (sent, [5])
    track(tracker, report(JobState.SUCCEEDED, 9))
    assert [one.step for one in tracker.metrics] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_tracker_that_is_away_is_one_warning_and_nothing_is_lost() -> None:
    tracker = FakeTracker([False, False, False])
    said = track(tracker, RUNNING, RUNNING, RUNNING, RUNNING, OVER)
    assert [text.split(":")[0] for text in said] == ["warning", "digits is tracked"]
    assert "the job continues" in said[0]
    assert len(tracker.metrics) == 5


def test_a_tracker_answers_again_when_it_has_taken_something() -> None:
    """It is not counted as answering when there is nothing to send, which is most of the time."""
    more = report(JobState.RUNNING, 4)
    tracker = FakeTracker(takes=[True, False, False, True])
    said = track(tracker, RUNNING, more, RUNNING, more, RUNNING, more, OVER)
    assert [text.split(":")[0] for text in said] == [
        *("digits is tracked", "warning", "the tracker answers again")
    ]
    assert len(tracker.metrics) == 5
    assert tracker.ends == [RunEnd.FINISHED]


def test_a_tracker_that_stays_away_is_given_up_after_the_end() -> None:
    with pytest.raises(TrackerUnavailable):
        track(FakeTracker([False] * 3), OVER, give_up_s=-1)


def test_a_model_without_a_keras_form_is_a_warning() -> None:
    tracker = FakeTracker()
    assert "no Keras form" in track(tracker, OVER, opening=no_model)[-1]
    assert tracker.ends == [RunEnd.FINISHED]


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED])
def test_a_job_without_success_has_no_model(state: JobState) -> None:
    tracker = FakeTracker()
    track(tracker, report(state, 3))
    assert tracker.models == []
    assert len(tracker.ends) == 1


def test_in_the_background_a_failure_is_said_and_not_raised() -> None:
    said: list[str] = []

    def fail() -> None:
        raise TrackerUnavailable("no connection")

    BackgroundTracking("digits", fail, said.append).finish()
    assert len(said) == 1
    assert "no connection" in said[0]
    assert "edl track digits sends the rest" in said[0]


def test_in_the_background_success_is_silent() -> None:
    said: list[str] = []
    BackgroundTracking("digits", lambda: None, said.append).finish()
    assert said == []
