"""What a study sees of the jobs of its trials."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from plans import make_plan

from edl.plugins.errors import EdlError, ErrorCode
from edl.plugins.job_status import Failure, JobEvent, JobState, JobStatus
from edl.plugins.jobs import JobSubmitter
from edl.plugins.options import Verb
from edl_tune.adapters.edl_jobs import EdlJobs
from edl_tune.adapters.study_folder import StudyFolder
from edl_tune.app import open_study
from edl_tune.core.trials import TrialJobPhase
from edl_tune.planning import StudyRequest
from edl_tune.ports import PAUSE


def event(number: int, kind: str, message: str, **facts: str) -> JobEvent:
    return JobEvent(number, "", 0.0, kind, "info", message, facts)


class FakeBackend:
    """A backend with one job, ``study-0000``, and the catalog that finds it."""

    def __init__(self, state: JobState = JobState.RUNNING, **changes: Any) -> None:
        self.status_now = JobStatus("study-0000", Verb.TRAIN, state, **changes)
        self.happened: list[JobEvent] = []
        self.answers = True
        self.is_passing = False

    @property
    def catalog(self) -> FakeBackend:
        return self

    def find(self, name: str) -> FakeBackend:
        if name != "study-0000":
            raise EdlError(ErrorCode.JOB_NOT_FOUND, "there is no such job")
        return self

    def status(self, name: str) -> Any:
        return SimpleNamespace(
            status=self.status_now, answered=self.answers, is_passing=self.is_passing
        )

    def finalize(self, name: str, status: JobStatus) -> JobStatus:
        failure = Failure("STOPPED", "it was stopped") if status.state != "SUCCEEDED" else None
        return replace(status, failure=status.failure or failure)

    def events(self, name: str, after: int) -> list[JobEvent]:
        return [each for each in self.happened if each.number > after]

    def jobs(self) -> EdlJobs:
        return EdlJobs(make_plan(), Path("/study"), cast(JobSubmitter, self), print)


def test_evaluations_are_known_by_their_number() -> None:
    backend = FakeBackend()
    jobs = backend.jobs()
    backend.happened = [
        event(3, "EvaluationStarted", "Evaluation 1 started.", evaluation="0"),
        event(4, "EvaluationEnded", "Evaluation 1: accuracy 0.5.", accuracy="0.5", loss="2"),
    ]
    assert jobs.look(0).evaluations == {1: {"accuracy": 0.5, "loss": 2.0}}
    # A new master evaluates once more what the last one had not recorded.
    backend.happened += [
        event(7, "EvaluationEnded", "Evaluation 1: accuracy 0.5.", accuracy="0.5"),
        event(8, "EvaluationEnded", "Evaluation 2 has no metrics: none of its tasks succeeded."),
        event(9, "EvaluationEnded", "Evaluation 3: accuracy nan.", accuracy="nan"),
    ]
    seen = jobs.look(0)
    assert seen.phase is TrialJobPhase.ALIVE
    assert list(seen.evaluations) == [1, 3]


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        (JobState.STARTING, TrialJobPhase.ALIVE),
        (JobState.STOPPING, TrialJobPhase.ALIVE),
        (JobState.SUCCEEDED, TrialJobPhase.SUCCEEDED),
        (JobState.FAILED, TrialJobPhase.FAILED),
        (JobState.CANCELLED, TrialJobPhase.STOPPED),
        (JobState.LOST, TrialJobPhase.LOST),
        (JobState.NOT_STARTED, TrialJobPhase.LOST),
    ],
)
def test_the_phase_follows_from_the_state(state: JobState, phase: TrialJobPhase) -> None:
    assert FakeBackend(state).jobs().look(0).phase is phase


def test_the_result_has_the_counts_of_the_job() -> None:
    counts = {"epochs_done": 2, "records_trained": 40, "steps": 5, "seconds": 1.5}
    seen = FakeBackend(JobState.SUCCEEDED, metrics={"accuracy": 0.9}, **counts).jobs().look(0)
    assert seen.failure is None
    result = seen.result
    assert (result.epochs, result.records, result.steps, result.seconds) == (2, 40, 5, 1.5)
    assert result.metrics == {"accuracy": 0.9}


def test_a_job_that_is_not_there_is_missing() -> None:
    backend = FakeBackend()
    assert backend.jobs().look(1).phase is TrialJobPhase.MISSING
    backend.is_passing = True
    assert backend.jobs().look(0).phase is TrialJobPhase.MISSING


def test_the_last_reason_tells_a_pause_from_a_stop_by_a_person() -> None:
    backend = FakeBackend(JobState.CANCELLED)
    stops = [f"The job was stopped: {PAUSE}.", "The job was stopped: edl stop."]
    for number, is_paused in ((1, True), (2, False)):
        backend.happened.append(event(number, "JobStopped", stops[number - 1]))
        assert backend.jobs().look(0).is_paused is is_paused


def test_a_loss_that_is_no_number_comes_from_the_values() -> None:
    for code, expected in (("NAN_LOSS", True), ("DISK_FULL", False)):
        seen = FakeBackend(JobState.FAILED, failure=Failure(code, "why")).jobs().look(0)
        assert seen.is_of_values is expected
        assert seen.result.error == "why"


def test_jobs_of_a_study_are_looked_for_where_they_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDL_HOME", str(tmp_path))
    folder = StudyFolder("study")
    folder.path.mkdir(parents=True)
    folder.write_plan(make_plan(options={"platform": "kubernetes", "namespace": "team-a"}))
    asked: list[Any] = []

    def submit(options: Any) -> None:
        asked.append(options)
        raise InterruptedError

    monkeypatch.setattr("edl_tune.app.job_submitter", submit)
    with (
        pytest.raises(InterruptedError),
        open_study(StudyRequest(), "study", tmp_path, None, quiet=True),
    ):
        pass
    assert asked == [{"platform": "kubernetes", "namespace": "team-a"}]
