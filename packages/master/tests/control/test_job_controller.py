"""The job behind its lock."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import numpy as np
import pytest
from fakes.job_settings import job_settings

from edl_master.adapters.buffer_pool import BufferPool
from edl_master.control import job_controller
from edl_master.control.captured_state import CapturedState
from edl_master.control.job_controller import GrantedLease, JobController
from edl_master.core.effects import JobPhase, LogEvent, LogScalar, WaitForWork
from edl_master.core.events import (
    InstanceExited,
    LeaseRequested,
    OutputFinished,
    SnapshotTaken,
    StopRequested,
    TaskCompleted,
    Tick,
    WorkerReady,
    WorkerRegistered,
)
from edl_master.core.identifiers import HeldLease, InstanceId, Version, WorkerId
from edl_master.core.job import JobStateMachine
from edl_master.core.metric_states import Addable, MetricState, MetricStates, add_up
from edl_master.core.parameters.layout import Variable
from edl_master.core.parameters.modes import Async
from edl_master.core.settings import JobType
from edl_master.parameters.plane import build_local

LONG_S = 200.0
SGD = json.dumps({"class_name": "SGD", "config": {"learning_rate": 1.0}})


class RecordedEffects:
    """External effects, in a list."""

    def __init__(self) -> None:
        self.done: list[tuple[Any, ...]] = []

    def start_worker(self, worker: WorkerId, attempt: int) -> None:
        self.done.append(("start", worker, attempt))

    def inspect_worker(self, worker: WorkerId) -> None:
        raise NotImplementedError

    def stop_worker(self, worker: WorkerId, *, kill: bool) -> None:
        self.done.append(("kill" if kill else "stop", worker))

    def record(self, event: LogEvent, at_s: float) -> None:
        self.done.append((event.kind,))

    def log_scalar(self, point: LogScalar, at_s: float) -> None:
        self.done.append(("point", point.name))

    def write_checkpoint(self, state: CapturedState) -> None:
        self.done.append(("checkpoint",))

    def write_snapshot(self, state: CapturedState) -> None:
        self.done.append(("snapshot",))

    def finish_output(self) -> None:
        self.done.append(("finish output",))


@pytest.fixture
def external() -> RecordedEffects:
    return RecordedEffects()


@pytest.fixture
def controller(external: RecordedEffects) -> JobController:
    """A prediction job of two tasks, for two workers that are ready."""
    settings = job_settings(JobType.PREDICT, records_per_task=10, max_workers=2)
    plane = build_local(BufferPool(), lambda *_: Async()).coordinator
    controller = JobController(JobStateMachine(settings, (20,)), plane, external)
    make_ready(controller, 2)
    return controller


def make_ready(controller: JobController, workers: int) -> None:
    """Begin the job, with so many ready workers."""
    controller.handle(Tick())
    for number in range(workers):
        instance = InstanceId(f"host:{number}:0")
        controller.handle(WorkerRegistered(WorkerId(number), instance, "host", number))
        controller.handle(WorkerReady(WorkerId(number), instance))


def ask(number: int) -> LeaseRequested:
    return LeaseRequested(WorkerId(number), InstanceId(f"host:{number}:0"))


def test_effects_are_carried_out_in_order(
    controller: JobController, external: RecordedEffects
) -> None:
    assert external.done[:3] == [("JobStarted",), ("start", 0, 0), ("start", 1, 0)]
    assert isinstance(controller.handle(ask(0)), GrantedLease)
    assert controller.view().tasks
    assert controller.end is None


def test_a_waiting_request_is_answered_when_there_is_a_task(controller: JobController) -> None:
    for _ in range(2):
        assert isinstance(controller.request(ask(0), 0, lambda: True), GrantedLease)
    assert isinstance(controller.request(ask(1), 0.05, lambda: True), WaitForWork)
    answers: list[object] = []
    waiting = threading.Thread(
        target=lambda: answers.append(controller.request(ask(1), LONG_S, lambda: True))
    )
    waiting.start()
    time.sleep(0.05)
    assert answers == []
    # The holder of both tasks dies; the other one need not ask again.
    controller.handle(InstanceExited(WorkerId(0), InstanceId("host:0:0"), None, 9, preempted=True))
    waiting.join(LONG_S)
    (answer,) = answers
    assert isinstance(answer, GrantedLease)


def test_a_caller_that_is_gone_gets_no_task(controller: JobController) -> None:
    for _ in range(2):
        controller.handle(ask(0))
    here = threading.Event()
    here.set()
    answers: list[object] = []
    waiting = threading.Thread(
        target=lambda: answers.append(controller.request(ask(1), LONG_S, here.is_set))
    )
    waiting.start()
    here.clear()
    controller.handle(InstanceExited(WorkerId(0), InstanceId("host:0:0"), None, 9, preempted=True))
    waiting.join(LONG_S)
    assert isinstance(answers[0], WaitForWork)
    assert isinstance(controller.handle(ask(1)), GrantedLease)


def test_the_end_is_reported_to_waiting_callers(
    controller: JobController, external: RecordedEffects
) -> None:
    assert controller.wait_for_end(0.01) is None
    controller.handle(StopRequested("enough"))
    for number in (0, 1):
        controller.handle(
            InstanceExited(WorkerId(number), InstanceId(f"host:{number}:0"), 0, None, False)
        )
    assert ("snapshot",) in external.done  # a stopped job keeps its state
    end = controller.wait_for_end(LONG_S)
    assert end is not None
    assert end.phase is JobPhase.CANCELLED
    assert end.failure is not None
    assert end.failure.code == "STOPPED"


def test_a_fact_that_contradicts_the_job_ends_it_with_the_story(
    controller: JobController, external: RecordedEffects
) -> None:
    """No output was requested, so something is wrong with the master itself."""
    controller.handle(OutputFinished())
    assert ("JobFailed",) in external.done
    failure = controller.view().failure
    assert failure is not None
    assert failure.code == "INTERNAL"
    assert "OutputFinished" in failure.where
    assert "WorkerReady" in failure.what + failure.detail
    for number in (0, 1):
        controller.handle(
            InstanceExited(WorkerId(number), InstanceId(f"host:{number}:0"), 0, None, False)
        )
    end = controller.end
    assert end is not None
    assert end.phase is JobPhase.FAILED


def test_a_defect_while_the_job_fails_still_ends_it(
    controller: JobController, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: JobStateMachine, event: object, now: float) -> list[object]:
        raise RuntimeError("broken")

    monkeypatch.setattr(JobStateMachine, "handle", fail)
    controller.handle(Tick())
    end = controller.end
    assert end is not None
    assert end.phase is JobPhase.FAILED
    assert end.failure is not None
    assert "broken" in end.failure.what


def test_metric_states_are_added_up_outside_of_the_lock(
    external: RecordedEffects, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = job_settings(JobType.EVALUATE, records_per_task=10, max_workers=2)
    plane = build_local(BufferPool(), lambda *_: Async()).coordinator
    controller = JobController(JobStateMachine(settings, (40,)), plane, external)
    make_ready(controller, 2)
    begun, answered = threading.Event(), threading.Event()
    sizes: list[int] = []

    def add_slowly(addends: tuple[MetricStates, ...]) -> MetricStates:
        begun.set()
        assert answered.wait(LONG_S), "a lease waits for the sum"
        sizes.append(len(addends))
        return add_up(addends)

    monkeypatch.setattr(job_controller, "add_up", add_slowly)
    states = (MetricState("n", (Addable("float32", np.ones(3, np.float32)),)),)

    def complete(number: int) -> None:
        granted = controller.handle(ask(number))
        assert isinstance(granted, GrantedLease)
        held = HeldLease(granted.lease.task, granted.lease.token)
        done = TaskCompleted(WorkerId(number), held, 1, 0, 10, 10, states)
        assert controller.handle(done) is None

    complete(0)
    adding = threading.Thread(target=complete, args=(0,))
    adding.start()
    assert begun.wait(LONG_S)
    other = controller.request(ask(1), 0, lambda: True)
    answered.set()
    adding.join(LONG_S)
    assert isinstance(other, GrantedLease)
    complete(0)
    assert sizes == [2, 2], "sums take the place of their addends"


def test_a_bounded_number_of_requests_waits_and_others_ask_again_later(
    monkeypatch: pytest.MonkeyPatch, external: RecordedEffects
) -> None:
    monkeypatch.setattr(job_controller, "MAX_WAITING_REQUESTS", 1)
    settings = job_settings(JobType.PREDICT, records_per_task=10, max_workers=3)
    plane = build_local(BufferPool(), lambda *_: Async()).coordinator
    controller = JobController(
        JobStateMachine(settings, (10,)), plane, external, crowded_retry_s=2.5
    )
    make_ready(controller, 3)
    assert isinstance(controller.request(ask(0), 0, lambda: True), GrantedLease)
    answers: list[object] = []
    began = threading.Event()

    def is_wanted() -> bool:
        began.set()
        return True

    waiting = threading.Thread(
        target=lambda: answers.append(controller.request(ask(1), LONG_S, is_wanted))
    )
    waiting.start()
    assert began.wait(LONG_S)
    refused = controller.request(ask(2), LONG_S, lambda: True)
    assert isinstance(refused, WaitForWork)
    assert refused.retry_in_s == 2.5
    controller.handle(InstanceExited(WorkerId(0), InstanceId("host:0:0"), None, 9, preempted=True))
    waiting.join(LONG_S)
    assert isinstance(answers[0], GrantedLease)
    # The place of the request that has been answered is free again.
    assert not isinstance(controller.request(ask(2), 0.01, lambda: False), GrantedLease)


def test_a_snapshot_without_parameters_is_skipped_and_asked_for_again(
    external: RecordedEffects,
) -> None:
    settings = job_settings(JobType.TRAIN, records_per_task=10, snapshot_interval_s=60.0)
    local = build_local(BufferPool(), lambda *_: Async())
    now = [0.0]
    job = JobStateMachine(settings, (20,))
    controller = JobController(job, local.coordinator, external, clock=lambda: now[0])
    make_ready(controller, 1)
    for second in range(3):
        now[0] = float(second)
        controller.handle(Tick())
    assert ("snapshot",) not in external.done
    local.model.describe((Variable("w", (4,), "float32", True),), SGD, "sum")
    local.plane.initialize(WorkerId(0), memoryview(bytes(16)))
    now[0] = 3.0
    controller.handle(Tick())
    assert external.done.count(("snapshot",)) == 1, "as soon as there is something to save"
    now[0] = 300.0
    controller.handle(Tick())
    assert external.done.count(("snapshot",)) == 1, "the first one is still being written"
    controller.handle(SnapshotTaken(Version(0), 0.1))
    now[0] = 360.0
    controller.handle(Tick())
    assert external.done.count(("snapshot",)) == 2
