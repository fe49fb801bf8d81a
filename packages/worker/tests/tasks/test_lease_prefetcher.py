"""A lease that arrives when its session is over leaves nothing behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from edl_worker.concurrency.shared_state import SharedState
from edl_worker.core.tasks import Lease, Leave, TaskKey, TaskType, Wait
from edl_worker.tasks.lease_prefetcher import Assignment, LeasePrefetcher

LONG_S = 200.0
LEASE = Lease(TaskKey(TaskType.TRAINING, 0, 0), token=1)


class Job:
    """A master with one task, whose reply and whose records may be awaited."""

    incarnation = "one"

    def __init__(self) -> None:
        self.state = SharedState()
        client: Any = self
        self.prefetcher = LeasePrefetcher(client, self.state, self.minibatches)
        self.reply, self.records = threading.Event(), threading.Event()
        self.asked, self.reading = threading.Event(), threading.Event()
        self.opened = self.closed = 0

    def lease(self, incarnation: str) -> Lease:
        self.asked.set()
        assert self.reply.wait(LONG_S)
        return LEASE

    def minibatches(self, lease: Lease) -> Iterator[Any]:
        self.opened += 1
        try:
            self.reading.set()
            assert self.records.wait(LONG_S)
            yield "a minibatch"
            yield "another one"
        finally:
            self.closed += 1

    def end_session(self) -> None:
        """Do what the session does when the master was replaced."""
        self.prefetcher.close()
        self.state.release_all()


@pytest.fixture
def job() -> Iterator[Job]:
    job = Job()
    yield job
    job.reply.set()
    job.records.set()
    finish()


def finish() -> None:
    """Wait for the lease threads."""
    for thread in threading.enumerate():
        if thread.name == "lease":
            thread.join(LONG_S)


def test_a_task_that_was_not_taken_is_closed(job: Job) -> None:
    job.reply.set()
    job.records.set()
    job.prefetcher.request()
    finish()
    assert (job.opened, job.closed) == (1, 0)
    job.prefetcher.close()
    assert job.closed == 1
    assert job.state.leases() == [LEASE.ref], "to be returned when the worker leaves"


def test_a_reply_that_comes_too_late_is_dropped(job: Job) -> None:
    job.records.set()
    job.prefetcher.request()
    assert job.asked.wait(LONG_S)
    job.end_session()
    job.reply.set()
    finish()
    assert job.state.leases() == []
    assert job.opened == 0


def test_a_pipeline_that_is_ready_too_late_is_closed(job: Job) -> None:
    job.reply.set()
    job.prefetcher.request()
    assert job.reading.wait(LONG_S)
    job.end_session()
    job.records.set()
    finish()
    assert job.state.leases() == []
    assert (job.opened, job.closed) == (1, 1)


def test_the_log_says_once_why_there_is_no_task(
    job: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    one, other = Wait(1e-9, "the next tasks are being prepared"), Wait(1e-9, "others hold them")
    answers = iter([one, one, other, other, one, Leave("job-over")])
    monkeypatch.setattr(job, "lease", lambda incarnation: next(answers))
    assert job.prefetcher.take() == Leave("job-over")
    told = [f"no task now: {each.reason}" for each in (one, other, one)]
    assert [record.getMessage() for record in caplog.records] == told


def test_work_goes_on_while_there_is_no_task(job: Job) -> None:
    calls = 0

    def meanwhile() -> None:
        nonlocal calls
        calls += 1
        job.records.set()
        if calls == 3:
            job.reply.set()

    answer = job.prefetcher.take(meanwhile)
    assert isinstance(answer, Assignment)
    assert answer.lease == LEASE
    assert calls >= 3
    answer.close()
