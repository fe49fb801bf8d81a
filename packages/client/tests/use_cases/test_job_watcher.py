"""A job that is watched while its cluster cannot be reached."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from edl.adapters.job_service_client import CALL_S
from edl.core.job_log import LogChoice
from edl.core.job_status import JobEvent, JobState, JobStatus
from edl.core.options import Verb
from edl.core.options.value_types import WorkerRange
from edl.ports.job_backend import JobBackend, MasterUnreachable
from edl.use_cases import job_watcher
from edl.use_cases.job_watcher import JobWatcher
from edl_proto.errors import EdlError, ErrorCode

AWAY = EdlError(ErrorCode.CLUSTER_UNAVAILABLE, "the cluster does not answer", remedy="Look.")
FORBIDDEN = EdlError(ErrorCode.FORBIDDEN, "no")


def report(state: JobState, *, answered: bool = True, pending: str = "") -> Any:
    status = JobStatus(job="digits", verb=Verb.TRAIN, state=state, pending=pending)
    return SimpleNamespace(status=status, answered=answered, is_over=state.is_over, location="here")


RUNNING, DONE = report(JobState.RUNNING), report(JobState.SUCCEEDED)


class FakeBackend:
    """Answers in turn; the last answer is given for ever."""

    def __init__(self, *answers: Any) -> None:
        self._answers: Iterator[Any] = iter(answers)
        self._last: Any = None

    def status(self, name: str, *, ask: bool = True) -> Any:
        self._last = next(self._answers, self._last)
        if isinstance(self._last, EdlError):
            raise self._last
        return self._last

    def stop(self, name: str, reason: str) -> None: ...

    def logs(self, name: str, choice: LogChoice) -> Any:
        return SimpleNamespace(poll=lambda final: ())

    def events(self, name: str, after: int) -> Sequence[JobEvent]:
        return ()

    def finalize(self, name: str, status: JobStatus) -> JobStatus:
        return status

    def close(self) -> None: ...


@dataclass
class FakeDisplay:
    said: list[str] = field(default_factory=list)

    def update(self, status: JobStatus) -> None: ...

    def show_event(self, event: JobEvent) -> None: ...

    def say(self, text: str) -> None:
        self.said.append(text)

    def close(self) -> None: ...


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time goes by only where the watcher sleeps."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    fake = SimpleNamespace(sleep=sleep, monotonic=lambda: now[0])
    monkeypatch.setattr(job_watcher, "time", fake)


def watch(*answers: Any) -> tuple[JobStatus, list[str]]:
    display = FakeDisplay()
    backend = cast(JobBackend, FakeBackend(*answers))
    return JobWatcher(backend, "digits", display).run(), display.said


def test_a_watcher_waits_for_a_cluster_that_has_answered_before(clock: None) -> None:
    status, said = watch(RUNNING, AWAY, FORBIDDEN, AWAY, RUNNING, AWAY, DONE)
    assert status.state is JobState.SUCCEEDED
    assert said == 2 * ["the cluster does not answer; digits continues meanwhile"]


def test_a_watcher_waits_for_a_job_in_a_queue(clock: None) -> None:
    waits = report(JobState.STARTING, answered=False, pending="its Job is suspended")
    status, _ = watch(*(2 * int(job_watcher.PATIENCE_S / job_watcher.POLL_S) * [waits]), DONE)
    assert status.state is JobState.SUCCEEDED


def stop_and_watch(*answers: Any) -> JobStatus:
    watcher = JobWatcher(cast(JobBackend, FakeBackend(*answers)), "digits", FakeDisplay())
    watcher.stop("enough")
    return watcher.run()


def test_a_job_may_take_long_to_stop_while_its_master_answers(clock: None) -> None:
    writes = 10 * int(job_watcher.PATIENCE_S / job_watcher.POLL_S) * [RUNNING]
    assert stop_and_watch(*writes, DONE).state is JobState.SUCCEEDED


@pytest.mark.parametrize("pending", ["", "its Job is suspended"])
def test_a_stop_without_an_answer_is_given_up(clock: None, pending: str) -> None:
    with pytest.raises(EdlError, match="has not answered") as caught:
        stop_and_watch(RUNNING, report(JobState.RUNNING, answered=False, pending=pending))
    assert caught.value.code == ErrorCode.TIMED_OUT
    assert "The job continues" in caught.value.remedy


class Frozen(FakeBackend):
    """Its master and its supervisor are frozen for so long."""

    def __init__(self, seconds: float) -> None:
        super().__init__(RUNNING, RUNNING, DONE)
        self._left_s = seconds

    def change(self, name: str, workers: WorkerRange) -> WorkerRange:
        self._wait()
        return workers

    def stop(self, name: str, reason: str) -> None:
        self._wait()

    def _wait(self) -> None:
        if self._left_s > 0:
            job_watcher.time.sleep(CALL_S)
            self._left_s -= CALL_S
            raise MasterUnreachable("UNAVAILABLE: SSL_ERROR_SSL: handshake failed")


def test_requests_outlast_a_master_that_is_frozen_with_its_supervisor(clock: None) -> None:
    wanted = WorkerRange(1, 3)
    said: list[str] = []
    backend = cast(JobBackend, Frozen(90.0))
    assert job_watcher.change(backend, "digits", wanted, said.append) == wanted
    display = FakeDisplay()
    watcher = JobWatcher(cast(JobBackend, Frozen(90.0)), "digits", display)
    watcher.stop("enough")
    assert watcher.run().state is JobState.SUCCEEDED
    text = "the master of digits does not answer; asking again for up to 3 m 00 s"
    assert said == display.said == [text]


def test_a_request_that_is_never_answered_says_so_in_plain_words(clock: None) -> None:
    with pytest.raises(EdlError, match="has not answered for 3 m 00 s") as caught:
        job_watcher.change(cast(JobBackend, Frozen(1e9)), "digits", WorkerRange(1, 3), str)
    assert caught.value.code == ErrorCode.TIMED_OUT
    assert "SSL" not in str(caught.value)


def test_a_watcher_that_gives_up_says_that_the_job_goes_on(clock: None) -> None:
    with pytest.raises(EdlError) as caught:
        watch(RUNNING, AWAY)
    assert caught.value.code == ErrorCode.CLUSTER_UNAVAILABLE
    assert caught.value.remedy == "The job continues; edl wait digits watches it again. Look."


def test_a_cluster_that_goes_on_to_refuse_is_believed(clock: None) -> None:
    with pytest.raises(EdlError) as caught:
        watch(RUNNING, AWAY, FORBIDDEN)
    assert caught.value is FORBIDDEN


@pytest.mark.parametrize("answers", [(AWAY, DONE), (RUNNING, FORBIDDEN, DONE)])
def test_a_cluster_that_never_answered_and_other_errors_end_a_watcher_at_once(
    clock: None, answers: tuple[Any, ...]
) -> None:
    with pytest.raises(EdlError) as caught:
        watch(*answers)
    assert caught.value in answers
