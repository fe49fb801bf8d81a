"""The job behind its lock."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from edl_master.adapters.buffer_pool import Buffers
from edl_master.control.job_controller import Conductor, Leased
from edl_master.core.effects import JobPhase, LogScalar, Record, WaitForWork
from edl_master.core.events import (
    BodyExited,
    LeaseRequested,
    OutputFinished,
    StopRequested,
    Tick,
    WorkerReady,
    WorkerRegistered,
)
from edl_master.core.identifiers import Body, WorkerId
from edl_master.core.job import JobState
from edl_master.core.parameters.modes import Async
from edl_master.core.parameters.snapshot import Snapshot
from edl_master.core.settings import JobSettings, JobType
from edl_master.guarded_plane import GuardedPlane

LONG_S = 60.0


class Noted:
    """What a job reaches outside, written down."""

    def __init__(self) -> None:
        self.done: list[tuple[Any, ...]] = []

    def start_worker(self, worker: WorkerId, attempt: int) -> None:
        self.done.append(("start", worker, attempt))

    def stop_worker(self, worker: WorkerId, *, kill: bool) -> None:
        self.done.append(("kill" if kill else "stop", worker))

    def record(self, record: Record, at_s: float) -> None:
        self.done.append((record.kind,))

    def log_scalar(self, point: LogScalar, at_s: float) -> None:
        self.done.append(("point", point.name))

    def write_checkpoint(self, ledger: dict[str, Any], plane: Snapshot) -> None:
        self.done.append(("checkpoint",))

    def finish_output(self) -> None:
        self.done.append(("finish output",))


@pytest.fixture
def outside() -> Noted:
    return Noted()


@pytest.fixture
def conductor(outside: Noted) -> Conductor:
    """A prediction job of two tasks, for two workers that are ready."""
    settings = JobSettings(JobType.PREDICT, records_per_task=10, max_workers=2)
    plane = GuardedPlane(lambda reduction: Async(), None, Buffers())
    conductor = Conductor(JobState(settings, (20,)), plane, outside)
    conductor.tell(Tick())
    for number in (0, 1):
        body = Body(f"host:{number}:0")
        conductor.tell(WorkerRegistered(WorkerId(number), body, "host", number))
        conductor.tell(WorkerReady(WorkerId(number), body))
    return conductor


def ask(number: int) -> LeaseRequested:
    return LeaseRequested(WorkerId(number), Body(f"host:{number}:0"))


def test_decisions_are_carried_out_in_order(conductor: Conductor, outside: Noted) -> None:
    assert outside.done[:3] == [("JobStarted",), ("start", 0, 0), ("start", 1, 0)]
    assert isinstance(conductor.tell(ask(0)), Leased)
    assert conductor.view().tasks
    assert conductor.end is None


def test_who_asks_for_work_is_answered_when_there_is_some(conductor: Conductor) -> None:
    for _ in range(2):
        assert isinstance(conductor.ask_for_work(ask(0), 0, lambda: True), Leased)
    assert isinstance(conductor.ask_for_work(ask(1), 0.05, lambda: True), WaitForWork)
    answers: list[object] = []
    waiting = threading.Thread(
        target=lambda: answers.append(conductor.ask_for_work(ask(1), LONG_S, lambda: True))
    )
    waiting.start()
    time.sleep(0.05)
    assert answers == []
    # The holder of both tasks dies; the other one need not ask again.
    conductor.tell(BodyExited(WorkerId(0), Body("host:0:0"), None, 9, preempted=True))
    waiting.join(LONG_S)
    (answer,) = answers
    assert isinstance(answer, Leased)


def test_who_is_gone_is_given_nothing(conductor: Conductor) -> None:
    for _ in range(2):
        conductor.tell(ask(0))
    here = threading.Event()
    here.set()
    answers: list[object] = []
    waiting = threading.Thread(
        target=lambda: answers.append(conductor.ask_for_work(ask(1), LONG_S, here.is_set))
    )
    waiting.start()
    here.clear()
    conductor.tell(BodyExited(WorkerId(0), Body("host:0:0"), None, 9, preempted=True))
    waiting.join(LONG_S)
    assert isinstance(answers[0], WaitForWork)
    assert isinstance(conductor.tell(ask(1)), Leased)


def test_the_end_is_told_to_who_waits_for_it(conductor: Conductor) -> None:
    assert conductor.wait_for_end(0.01) is None
    conductor.tell(StopRequested("enough"))
    for number in (0, 1):
        conductor.tell(BodyExited(WorkerId(number), Body(f"host:{number}:0"), 0, None, False))
    end = conductor.wait_for_end(LONG_S)
    assert end is not None
    assert end.phase is JobPhase.CANCELLED
    assert end.failure is not None
    assert end.failure.code == "STOPPED"


def test_a_fact_that_contradicts_the_job_ends_it_with_the_story(
    conductor: Conductor, outside: Noted
) -> None:
    """Nobody asked for an output: something is wrong with the master itself."""
    conductor.tell(OutputFinished())
    assert ("JobFailed",) in outside.done
    failure = conductor.view().failure
    assert failure is not None
    assert failure.code == "INTERNAL"
    assert "OutputFinished" in failure.where
    assert "WorkerReady" in failure.what + failure.detail
    for number in (0, 1):
        conductor.tell(BodyExited(WorkerId(number), Body(f"host:{number}:0"), 0, None, False))
    end = conductor.end
    assert end is not None
    assert end.phase is JobPhase.FAILED


def test_a_defect_while_the_job_fails_still_ends_it(
    conductor: Conductor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: JobState, event: object, now: float) -> list[object]:
        raise RuntimeError("broken")

    monkeypatch.setattr(JobState, "handle", broken)
    conductor.tell(Tick())
    end = conductor.end
    assert end is not None
    assert end.phase is JobPhase.FAILED
    assert end.failure is not None
    assert "broken" in end.failure.what
