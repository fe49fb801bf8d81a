"""A worker that beats but gets nowhere is named, asked for its stacks, and ended."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes.job_settings import TIMINGS, job_settings

from edl_master.core import effects as fx
from edl_master.core import events as ev
from edl_master.core.identifiers import InstanceId, Version, WorkerId
from edl_master.core.job import JobStateMachine
from edl_master.core.settings import JobType
from edl_master.core.stall_detector import (
    ProgressWatch,
    StallDetector,
    StallTimeouts,
    StallVerdict,
    WorkerActivity,
)

TIMEOUTS = StallTimeouts(
    steps=10.0, least_s=2.0, starts=5.0, start_s=8.0, first_s=30.0, whole_task_s=60.0, stacks_s=3.0
)
SETTINGS = job_settings(
    JobType.TRAIN,
    records_per_task=20,
    minibatch_size=2,
    max_workers=2,
    timings=replace(TIMINGS, stall=TIMEOUTS),
)


def detector_after(step_s: float) -> tuple[StallDetector, ProgressWatch]:
    """A job whose tasks begin with a step of a second, and go on with these."""
    detector, watch = StallDetector(TIMEOUTS), ProgressWatch(0.0)
    now = 1.0
    detector.record_step(watch, now)
    for _ in range(20):
        now += step_s
        detector.record_step(watch, now)
    return detector, watch


@pytest.mark.parametrize(("step_s", "limit_s"), [(0.01, 2.0), (1.0, 10.0), (5.0, 50.0)])
def test_the_limit_is_a_multiple_of_the_median_step(step_s: float, limit_s: float) -> None:
    detector, watch = detector_after(step_s)
    assert detector.limit_s(watch, WorkerActivity.STEPS) == pytest.approx(limit_s)
    assert (
        detector.check(watch, watch.since + limit_s - 0.1, WorkerActivity.STEPS)
        is StallVerdict.NOTHING
    )
    assert (
        detector.check(watch, watch.since + limit_s + 0.1, WorkerActivity.STEPS) is StallVerdict.ASK
    )


def test_one_odd_step_does_not_move_the_median() -> None:
    detector, watch = detector_after(0.5)
    before = detector.limit_s(watch, WorkerActivity.STEPS)
    detector.record_step(watch, watch.since + 1000.0)
    assert detector.limit_s(watch, WorkerActivity.STEPS) == pytest.approx(before)


def test_first_steps_and_tasks_without_steps_have_times_of_their_own() -> None:
    detector, watch = detector_after(0.5)
    watch.begin(watch.since)
    assert detector.limit_s(watch, WorkerActivity.STEPS) == 8.0
    assert StallDetector(TIMEOUTS).limit_s(ProgressWatch(0.0), WorkerActivity.STEPS) == 30.0
    assert detector.limit_s(watch, WorkerActivity.WHOLE_TASK) == 60.0


def test_the_second_step_of_a_job_has_the_time_of_its_first() -> None:
    """Nothing is known of later steps; also after a restart, and with one minibatch per task."""
    detector, watch = StallDetector(TIMEOUTS), ProgressWatch(0.0)
    detector.record_step(watch, 7.0)
    assert detector.limit_s(watch, WorkerActivity.STEPS) == 30.0


@pytest.mark.parametrize("activity", WorkerActivity)
def test_a_minimum_raises_every_limit_and_lowers_none(activity: WorkerActivity) -> None:
    watch = ProgressWatch(0.0)
    usual_s = StallDetector(TIMEOUTS).limit_s(watch, activity)
    lower = StallDetector(replace(TIMEOUTS, minimum_s=usual_s / 2))
    assert lower.limit_s(watch, activity) == usual_s
    raised = StallDetector(replace(TIMEOUTS, minimum_s=3600.0))
    assert raised.check(watch, 3599.0, activity) is StallVerdict.NOTHING
    assert raised.check(watch, 3601.0, activity) is StallVerdict.ASK


def test_it_is_ended_when_its_stacks_came_or_did_not_come_in_time() -> None:
    detector, watch = detector_after(0.1)
    asked = watch.since + 3.0
    assert detector.check(watch, asked, WorkerActivity.STEPS) is StallVerdict.ASK
    assert detector.check(watch, asked + 2.9, WorkerActivity.STEPS) is StallVerdict.NOTHING
    assert detector.check(watch, asked + 3.1, WorkerActivity.STEPS) is StallVerdict.STOP
    watch.stacks = "here"
    assert detector.check(watch, asked + 0.1, WorkerActivity.STEPS) is StallVerdict.STOP


def test_a_step_clears_the_suspicion() -> None:
    detector, watch = detector_after(0.1)
    detector.check(watch, watch.since + 3.0, WorkerActivity.STEPS)
    detector.record_step(watch, watch.since + 3.5)
    assert detector.check(watch, watch.since + 1.0, WorkerActivity.STEPS) is StallVerdict.NOTHING


# --- in a job --------------------------------------------------------------------------------


class Played:
    """A job with two workers that beat; time passes in quarters of a second."""

    def __init__(self) -> None:
        self.job = JobStateMachine(SETTINGS, (200,))
        self.now = 0.0
        self.records: list[fx.LogEvent] = []
        self.leases: dict[int, fx.LeaseGranted] = {}
        self.index = {0: 0, 1: 0}
        self.tell(ev.Tick())
        for number in (0, 1):
            self.tell(ev.WorkerRegistered(WorkerId(number), InstanceId(f"b{number}"), "host", 1))
            self.tell(ev.WorkerReady(WorkerId(number), InstanceId(f"b{number}")))
            self.ask(number)

    def tell(self, event: ev.Event) -> list[fx.Effect]:
        effects = self.job.handle(event, self.now)
        self.records += [effect for effect in effects if isinstance(effect, fx.LogEvent)]
        self.job.check_invariants()
        return effects

    def ask(self, number: int) -> fx.LeaseGranted:
        effects = self.tell(ev.LeaseRequested(WorkerId(number), InstanceId(f"b{number}")))
        (granted,) = (effect for effect in effects if isinstance(effect, fx.LeaseGranted))
        self.leases[number] = granted
        return granted

    def beat(self, number: int, phase: str = "computing", stacks: str = "") -> fx.HeartbeatAnswer:
        lease = self.leases[number]
        held = (ev.HeldLease(lease.task, lease.token),)
        instance = InstanceId(f"b{number}")
        beat = ev.HeartbeatReceived(WorkerId(number), instance, held, phase, stacks)
        effects = self.tell(beat)
        (answer,) = (effect for effect in effects if isinstance(effect, fx.HeartbeatAnswer))
        return answer

    def step(self, number: int) -> None:
        lease = self.leases[number]
        held = ev.HeldLease(lease.task, lease.token)
        version = Version(sum(self.index.values()) + 1)
        applied = ev.MinibatchApplied(WorkerId(number), held, 2, version, 1.0, 0)
        self.tell(applied)
        self.index[number] += 1

    def pass_quarter(self) -> list[fx.Effect]:
        self.now += 0.25
        return self.tell(ev.Tick())

    def kinds(self) -> list[str]:
        return [record.kind for record in self.records]


def test_a_stalled_worker_reports_its_stacks_is_killed_and_its_task_leased_again() -> None:
    played = Played()
    hung = played.leases[1].task
    for _ in range(8):
        played.pass_quarter()
        for number in (0, 1):
            played.step(number)
            played.beat(number)
    # From now on worker 1 beats, and does nothing else.
    answer = played.beat(1)
    while not answer.send_stacks:
        assert played.now < 20.0
        effects = played.pass_quarter()
        assert not any(isinstance(effect, fx.StopWorker) for effect in effects)
        played.beat(0, "waiting")
        answer = played.beat(1)
    assert played.kinds()[-1] == "WorkerStallSuspected"
    assert not played.beat(1, stacks="Thread 1: in dataset_fn, zoo/model.py:12").send_stacks
    (told,) = (record for record in played.records if record.kind == "WorkerStacks")
    assert "zoo/model.py:12" in told.facts["stacks"]
    effects = played.pass_quarter()
    assert fx.StopWorker(WorkerId(1), kill=True) in effects
    assert any(isinstance(effect, fx.RevokeLease) and effect.task == hung for effect in effects)
    assert "WorkerStalled" in played.kinds()
    assert "TaskRetried" in played.kinds(), "it counts against the task"
    assert played.job.view(played.now).progress.lost_s["stalled"] > 0
    # The instance's end is not counted a second time; the worker gets another one.
    effects = played.tell(
        ev.InstanceExited(WorkerId(1), InstanceId("b1"), None, 9, False, attempt=0)
    )
    assert played.job.view(played.now).worker_failures == 1
    assert any(isinstance(effect, fx.StartWorker) for effect in effects)
    assert played.ask(0).task == hung


def test_code_that_never_gives_a_first_minibatch_is_found() -> None:
    """The worker says that it waits, since another thread of it builds the pipeline."""
    played = Played()
    while "WorkerStalled" not in played.kinds():
        assert played.now < 60.0
        played.pass_quarter()
        played.step(0) if played.index[0] < 10 else None
        played.beat(0)
        if "WorkerStalled" not in played.kinds():
            played.beat(1, "waiting")


def test_a_worker_that_waits_for_others_is_not_suspected() -> None:
    played = Played()
    for number in (0, 1):
        played.step(number)
        played.step(number)
    for _ in range(400):
        played.pass_quarter()
        for number in (0, 1):
            played.beat(number, "waiting")
    assert "WorkerStallSuspected" not in played.kinds()


def test_steps_that_are_slow_for_all_workers_are_no_stall() -> None:
    """If steps take 20 s, no worker is suspected before 200 s."""
    settings = replace(SETTINGS, timings=replace(TIMINGS, stall=replace(TIMEOUTS, first_s=100.0)))
    played = Played()
    played.job = JobStateMachine(settings, (200,))
    played.__dict__.update(now=0.0, records=[])
    played.tell(ev.Tick())
    for number in (0, 1):
        played.tell(ev.WorkerRegistered(WorkerId(number), InstanceId(f"b{number}"), "host", 1))
        played.tell(ev.WorkerReady(WorkerId(number), InstanceId(f"b{number}")))
        played.ask(number)
    for quarter in range(800):
        played.pass_quarter()
        for number in (0, 1):
            played.beat(number)
            if quarter % 80 == 79:
                played.step(number)
    assert "WorkerStallSuspected" not in played.kinds()


def test_a_model_file_that_never_loads_is_found_and_in_the_end_fails_the_job() -> None:
    """Its import sleeps, say: three instances tell where, and then the job says so."""
    settings = replace(
        SETTINGS,
        max_workers=1,
        timings=replace(TIMINGS, stall=replace(TIMEOUTS, load_s=30.0)),
    )
    played = Played()
    played.job = JobStateMachine(settings, (200,))
    played.__dict__.update(now=0.0, records=[])
    played.tell(ev.Tick())
    worker = WorkerId(0)
    for attempt in range(3):
        instance = InstanceId(f"loading-{attempt}")
        began = played.now
        played.tell(ev.WorkerRegistered(worker, instance, "host", 1))
        stacks, killed = "", False
        while not killed:
            assert played.now < began + 40.0
            effects = played.tell(ev.HeartbeatReceived(worker, instance, (), "LOADING", stacks))
            asked = any(isinstance(e, fx.HeartbeatAnswer) and e.send_stacks for e in effects)
            stacks = "in sleep, model.py:3" if asked else ""
            killed = any(isinstance(e, fx.StopWorker) and e.kill for e in played.pass_quarter())
        assert played.now > began + 30.0
        tail = "in sleep, model.py:3"
        effects = played.tell(
            ev.InstanceExited(worker, instance, None, 9, False, tail, attempt=attempt)
        )
        while attempt < 2 and not any(isinstance(effect, fx.StartWorker) for effect in effects):
            assert played.now < began + 120.0
            effects = played.pass_quarter()
    assert (
        played.kinds().count("WorkerStallSuspected") == played.kinds().count("WorkerStalled") == 3
    )
    failure = played.job.view(played.now).failure
    assert failure is not None
    assert failure.code == "WORKER_CRASH_LOOP"
    assert "in sleep, model.py:3" in failure.detail


def test_loading_that_comes_to_an_end_is_no_hang() -> None:
    played = Played()
    instance = InstanceId("b0-again")
    played.tell(ev.WorkerRegistered(WorkerId(0), instance, "host", 1))
    for _ in range(4 * 500):
        played.pass_quarter()
        played.tell(ev.HeartbeatReceived(WorkerId(0), instance, (), "LOADING"))
    assert "WorkerStallSuspected" not in [
        r.kind for r in played.records if r.facts.get("worker") == "0"
    ]
    played.tell(ev.WorkerReady(WorkerId(0), instance))
    played.pass_quarter()
    assert "WorkerStallSuspected" not in [
        r.kind for r in played.records if r.facts.get("worker") == "0"
    ]


def idle(phase: str, last_s: float, asks: bool = False) -> list[str]:
    """What is found about a worker that is ready, beats, and holds nothing for so long."""
    settings = replace(SETTINGS, timings=replace(TIMINGS, stall=replace(TIMEOUTS, ask_s=12.0)))
    played = Played()
    played.job = JobStateMachine(settings, (20,))
    played.__dict__.update(now=0.0, records=[])
    played.tell(ev.Tick())
    for number in (0, 1):
        played.tell(ev.WorkerRegistered(WorkerId(number), InstanceId(f"b{number}"), "host", 1))
        played.tell(ev.WorkerReady(WorkerId(number), InstanceId(f"b{number}")))
    played.ask(0)  # the only task
    while played.now < last_s:
        played.pass_quarter()
        played.step(0)
        if "WorkerStalled" in played.kinds():
            break
        beat = ev.HeartbeatReceived(WorkerId(1), InstanceId("b1"), (), phase, "in a lock")
        played.tell(beat)
        if asks:
            played.tell(ev.LeaseRequested(WorkerId(1), InstanceId("b1")))
    hung = [record for record in played.records if record.kind == "WorkerStalled"]
    assert all(record.facts["worker"] == "1" for record in hung)
    return played.kinds()


def test_a_worker_without_a_task_that_never_asks_for_one_is_found() -> None:
    found = idle("waiting", 20.0)
    assert found[-3:] == ["WorkerStallSuspected", "WorkerStacks", "WorkerStalled"]


def test_a_worker_that_asks_and_gets_nothing_is_not_suspected() -> None:
    assert "WorkerStallSuspected" not in idle("waiting", 40.0, asks=True)


def test_sending_the_first_values_has_the_time_of_loading() -> None:
    """The master takes a worker for ready before it has sent them; it says that it loads."""
    assert "WorkerStallSuspected" not in idle("loading", 40.0)


def test_a_worker_that_has_lost_its_task_and_hangs_in_it_is_found() -> None:
    played = Played()
    lease = played.leases[1]
    gone = ev.LeasesReturned(
        WorkerId(1), (ev.HeldLease(lease.task, lease.token),), "out-of-order", False
    )
    played.tell(gone)
    while "WorkerStalled" not in played.kinds():
        assert played.now < 400.0
        played.pass_quarter()
        if played.index[0] < 9:
            played.step(0)
        played.beat(0, "waiting")
        if "WorkerStalled" not in played.kinds():
            played.tell(ev.HeartbeatReceived(WorkerId(1), InstanceId("b1"), (), "computing"))
    assert played.now > SETTINGS.timings.stall.ask_s
