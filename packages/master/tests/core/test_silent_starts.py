"""Instances that run and never reach the master: users learn what is known of them."""

from __future__ import annotations

from collections.abc import Iterable

from fakes.job_settings import job_settings

from edl_master.core import effects as fx
from edl_master.core import events as ev
from edl_master.core.identifiers import InstanceId, WorkerId
from edl_master.core.job import JobStateMachine
from edl_master.core.settings import JobType

SETTINGS = job_settings(JobType.TRAIN, records_per_task=4, minibatch_size=2, max_workers=1)
ONLY = WorkerId(0)
NO_NAME = "the last line of its log: the name edl-digits does not resolve"


def start_job() -> JobStateMachine:
    """A job whose worker has a place since second 5."""
    job = JobStateMachine(SETTINGS, (16,))
    job.handle(ev.Tick(), 0.0)
    job.handle(ev.InstancePending(ONLY, "Creating"), 0.0)
    job.handle(ev.InstancePending(ONLY, ""), 5.0)
    return job


def is_inspected(effects: Iterable[fx.Effect]) -> bool:
    return fx.InspectWorker(ONLY) in list(effects)


def pass_time(job: JobStateMachine, start: int, stop: int) -> list[int]:
    """Tick every half second; the seconds in which the platform was asked."""
    return [
        half // 2
        for half in range(2 * start, 2 * stop)
        if is_inspected(job.handle(ev.Tick(), half / 2))
    ]


def inspect(job: JobStateMachine, words: str, at: float, attempt: int = 0) -> list[str]:
    effects = job.handle(ev.InstanceInspected(ONLY, attempt, words), at)
    return [each.message for each in effects if isinstance(each, fx.LogEvent)]


def pending(job: JobStateMachine) -> str:
    (worker,) = job.view(60.0).workers
    return worker.pending


def test_what_is_known_of_a_silent_instance_is_told_once_and_shown() -> None:
    job = start_job()
    assert pass_time(job, 5, 100) == [35, 66, 96], "every half minute"
    (line,) = inspect(job, NO_NAME, 100.0)
    assert line == f"Worker 0 has run for 95 s and has not reached the master; {NO_NAME}"
    assert pending(job) == f"it runs and has not reached the master; {NO_NAME}"
    assert inspect(job, NO_NAME, 101.0) == []
    assert len(inspect(job, "its pod has written nothing to its log", 102.0)) == 1
    job.handle(ev.WorkerRegistered(ONLY, InstanceId("0a"), "host", 1), 103.0)
    assert pending(job) == ""
    assert inspect(job, NO_NAME, 104.0) == [], "it has reached the master"


def test_an_instance_without_a_place_is_not_asked_about() -> None:
    job = start_job()
    job.handle(ev.InstancePending(ONLY, "Unschedulable", "no room"), 6.0)
    assert pass_time(job, 6, 100) == []
    assert inspect(job, NO_NAME, 100.0) == [], "an answer that comes late"
    assert pending(job) == "Unschedulable: no room"


def test_a_line_of_a_log_that_never_ends_is_cut() -> None:
    job, endless = start_job(), f"the last line of its log: {'x' * 32_000}"
    (line,) = inspect(job, endless, 6.0)
    assert len(line) < 600
    assert len(pending(job)) < 600
    job.handle(ev.InstancePending(ONLY, "ErrImagePull", endless), 7.0)
    assert len(pending(job)) < 600


def test_an_answer_about_an_earlier_instance_does_not_count() -> None:
    job = start_job()
    assert inspect(job, NO_NAME, 5.5, attempt=7) == []
    assert pending(job) == ""


def test_a_silent_instance_is_still_given_up_in_the_end() -> None:
    job = start_job()
    pass_time(job, 5, 100)
    inspect(job, NO_NAME, 100.0)
    pass_time(job, 100, 125)
    effects = [*job.handle(ev.Tick(), 125.0), *job.handle(ev.Tick(), 125.5)]
    stops = [each for each in effects if isinstance(each, fx.StopWorker)]
    assert [each.kill for each in stops] == [True]
