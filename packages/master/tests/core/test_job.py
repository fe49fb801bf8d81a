"""What the transcripts do not say well: snapshots, defects, curves, rates, odd clocks."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from fakes.job_settings import job_settings

from edl_master.core import effects as fx
from edl_master.core import events as ev
from edl_master.core.failure import Failure
from edl_master.core.identifiers import InstanceId, Version, WorkerId
from edl_master.core.interruption import Interruption
from edl_master.core.job import EVENTS_REMEMBERED, JobStateMachine
from edl_master.core.job_phases import InvariantViolation
from edl_master.core.outcome import MOST_WARNINGS
from edl_master.core.settings import JobSettings, JobType
from edl_master.core.worker import MOST_INSTANCES
from edl_master.reporting.status_codec import StatusContext, status_to

SETTINGS = job_settings(
    JobType.TRAIN, records_per_task=4, minibatch_size=2, num_epochs=2, shuffle=False, export=False
)
DATA = (10, 6)
WORKER, INSTANCE = WorkerId(0), InstanceId("0a")
CONTEXT = StatusContext("job", "", "", "", "", "incarnation", {}, ())


def joined(job: JobStateMachine, now: float = 0.0) -> JobStateMachine:
    """The job, begun, with worker 0 ready."""
    job.handle(ev.Tick(), now)
    job.handle(ev.WorkerRegistered(WORKER, INSTANCE, "host", 1), now)
    job.handle(ev.WorkerReady(WORKER, INSTANCE), now)
    return job


def lease(job: JobStateMachine, now: float = 0.0) -> fx.LeaseGranted:
    (granted,) = job.handle(ev.LeaseRequested(WORKER, INSTANCE), now)
    assert isinstance(granted, fx.LeaseGranted)
    return granted


def applied(granted: fx.LeaseGranted, index: int, version: int, loss: float) -> ev.MinibatchApplied:
    held = ev.HeldLease(granted.task, granted.token)
    return ev.MinibatchApplied(WORKER, held, index, 2, Version(version), loss, 0.5, 3)


# --- snapshots -----------------------------------------------------------------------------


def a_snapshot() -> dict[str, Any]:
    job = joined(JobStateMachine(SETTINGS, DATA))
    job.handle(applied(lease(job), 0, 1, 0.5), 0.0)
    saved: dict[str, Any] = json.loads(json.dumps(job.snapshot()))
    return saved


def test_a_restored_job_gives_the_same_snapshot() -> None:
    saved = a_snapshot()
    again = JobStateMachine.restore(SETTINGS, DATA, (), saved)
    assert json.loads(json.dumps(again.snapshot())) == saved


@pytest.mark.parametrize(
    ("settings", "data", "what"),
    [
        (SETTINGS, (10, 7), "records"),
        (SETTINGS, (6, 10), "files"),
        (replace(SETTINGS, records_per_task=8), DATA, "records_per_task"),
        (replace(SETTINGS, minibatch_size=4), DATA, "minibatch_size"),
        (replace(SETTINGS, seed=1), DATA, "seed"),
        (replace(SETTINGS, shuffle=True), DATA, "shuffle"),
        (replace(SETTINGS, type=JobType.PREDICT), DATA, "type"),
    ],
)
def test_a_snapshot_of_another_job_is_refused(
    settings: JobSettings, data: tuple[int, ...], what: str
) -> None:
    with pytest.raises(ValueError, match=rf"another job: {what} was"):
        JobStateMachine.restore(settings, data, (), a_snapshot())


def test_fewer_epochs_than_had_begun_are_refused() -> None:
    job = joined(JobStateMachine(replace(SETTINGS, num_epochs=3), (4,)))
    for _ in range(2):
        granted = lease(job)
        held = ev.HeldLease(granted.task, granted.token)
        job.handle(ev.TaskCompleted(WORKER, held, 2, 2, 4, 4, 1.0), 0.0)
    with pytest.raises(ValueError, match="epoch 3 had begun"):
        JobStateMachine.restore(replace(SETTINGS, num_epochs=2), (4,), (), job.snapshot())


def test_examples_are_counted_beside_records_and_a_difference_is_told_once() -> None:
    job = joined(JobStateMachine(SETTINGS, DATA))
    told: list[fx.LogEvent] = []
    for examples in (4, 3, 4, 6):
        granted = lease(job)
        held = ev.HeldLease(granted.task, granted.token)
        length = granted.records.stop - granted.records.start if granted.records else 0
        done = ev.TaskCompleted(WORKER, held, 2, 2, length, examples - 4 + length, 1.0)
        effects = job.handle(done, 0.0)
        told += [e for e in effects if isinstance(e, fx.LogEvent) and e.kind == "ExamplesDiffer"]
        saved = json.loads(json.dumps(job.snapshot()))
        job = joined(JobStateMachine.restore(SETTINGS, DATA, (), saved))
    assert [event.facts for event in told] == [{"records": "4", "examples": "3"}]
    view = job.view(0.0)
    assert (view.examples, view.examples_of) == (15, 14)


def test_no_number_that_a_worker_makes_up_keeps_others_from_the_status() -> None:
    """Sums over a job would not fit into the message that everybody reads."""
    job, most = joined(JobStateMachine(SETTINGS, DATA)), 2**64 - 1
    for _ in range(3):
        held = ev.HeldLease((granted := lease(job)).task, granted.token)
        job.handle(ev.TaskCompleted(WORKER, held, 2, 2, most, most, math.nan), 0.0)
    assert status_to(job.view(0.0), CONTEXT).examples < 2**40


def test_records_that_a_worker_makes_up_do_not_count_beyond_its_task() -> None:
    job = joined(JobStateMachine(SETTINGS, DATA))
    granted = lease(job)
    for index in range(50):
        made_up = replace(applied(granted, index, index + 1, 0.5), records=2**32 - 1)
        job.handle(made_up, float(index))
    view = job.view(50.0)
    assert view.records_trained == 4
    assert view.progress.records_per_s <= 4
    assert view.progress.mean_records_per_s <= 4


@pytest.mark.parametrize("reported", [(), (0,), (1,), (1, 0)])
def test_minibatches_that_no_report_named_before_the_restart_are_counted(
    reported: tuple[int, ...],
) -> None:
    job = joined(JobStateMachine(SETTINGS, DATA))
    granted = lease(job)
    for version, index in enumerate(reported, start=1):
        job.handle(applied(granted, index, version, 0.5), 0.0)
    in_the_model = {granted.task: 2}
    again = JobStateMachine.restore(SETTINGS, DATA, (), job.snapshot(), in_the_model)
    assert again.view(0.0).records_trained == 4


def test_a_snapshot_of_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="format 99"):
        JobStateMachine.restore(SETTINGS, DATA, (), a_snapshot() | {"format": 99})


@pytest.mark.parametrize(("asked", "wanted"), [((1, 1), (1, 3)), ((1, 2), (1, 2))])
def test_scaling_outlives_the_master_unless_other_numbers_are_asked(
    asked: tuple[int, int], wanted: tuple[int, int]
) -> None:
    job = joined(JobStateMachine(SETTINGS, DATA))
    job.handle(ev.ScaleRequested(1, 3), 0.0)
    settings = replace(SETTINGS, min_workers=asked[0], max_workers=asked[1])
    view = JobStateMachine.restore(settings, DATA, (), job.snapshot()).view(0.0)
    assert (view.min_workers, view.max_workers) == wanted


def test_dead_letters_and_attempts_outlive_the_master() -> None:
    rules = replace(SETTINGS, allow_dead_letters=True, task_attempts=2)
    job = joined(JobStateMachine(rules, DATA))
    failure = Failure("DATA_DAMAGED", "bad CRC", detail="Traceback")
    for permanent in (True, False):
        granted = lease(job)
        held = ev.HeldLease(granted.task, granted.token)
        job.handle(ev.TaskFailed(WORKER, held, failure, permanent), 0.0)
    saved = json.loads(json.dumps(job.snapshot()))
    again = joined(JobStateMachine.restore(rules, DATA, (), saved))
    assert again.view(0.0).dead_letters == job.view(0.0).dead_letters
    granted = lease(again)  # failed once before the restart; once more is too often
    held = ev.HeldLease(granted.task, granted.token)
    effects = again.handle(ev.TaskFailed(WORKER, held, failure, permanent=False), 0.0)
    assert "TaskDeadLettered" in [e.kind for e in effects if isinstance(e, fx.LogEvent)]


@pytest.mark.parametrize("last_of_its_round", [False, True])
def test_what_a_dead_letter_left_in_the_model_is_counted(last_of_its_round: bool) -> None:
    """Also a minibatch that was applied before the task was given up, and reported since."""
    rules = replace(SETTINGS, allow_dead_letters=True, num_epochs=1)
    job = joined(JobStateMachine(rules, (4,) if last_of_its_round else (4, 4)))
    granted = lease(job)
    held = ev.HeldLease(granted.task, granted.token)
    job.handle(applied(granted, 0, 1, 0.5), 0.0)
    job.handle(ev.TaskFailed(WORKER, held, Failure("USER_CODE", "boom"), True), 0.0)
    before = job.view(0.0)
    assert (before.records_trained, before.dead_letters[0].records_trained) == (2, 2)
    job.handle(applied(granted, 1, 2, 0.5), 0.0)
    after = job.view(0.0)
    assert (after.records_trained, after.dead_letters[0].records_trained) == (4, 4)
    assert after.progress.records_done == 4


def test_what_was_trained_after_the_snapshot_is_counted_as_computed_again() -> None:
    saved = a_snapshot()  # 2 records are trained, and none again
    interruption = Interruption(records=(9, 1))
    again = JobStateMachine.restore(SETTINGS, DATA, (), saved, interruption=interruption)
    assert again.view(0.0).records_replayed == 1 + 7
    for _ in range(2):  # a master that dies before its first snapshot
        view = again.view(0.0)
        interruption = Interruption(records=(view.records_trained, view.records_replayed))
        again = JobStateMachine.restore(SETTINGS, DATA, (), saved, interruption=interruption)
        assert again.view(0.0).records_replayed == 1 + 7


def test_a_restored_job_counts_what_only_the_parameters_count() -> None:
    """Pushes go on between the copy of the position and that of the parameters."""
    rules = replace(SETTINGS, allow_dead_letters=True)
    job = joined(JobStateMachine(rules, DATA))
    granted = lease(job)
    saved = json.loads(json.dumps(job.snapshot()))
    again = joined(JobStateMachine.restore(rules, DATA, (), saved, {granted.task: 1}))
    assert again.view(0.0).records_trained == 2
    later = lease(again)
    held = ev.HeldLease(later.task, later.token)
    again.handle(ev.TaskFailed(WORKER, held, Failure("USER_CODE", "boom"), True), 0.0)
    assert again.view(0.0).dead_letters[0].records_trained == 2


def test_dead_letters_in_detail_are_bounded_and_all_are_counted() -> None:
    rules = replace(SETTINGS, allow_dead_letters=True, num_epochs=1)
    job = joined(JobStateMachine(rules, (4 * 150,)))
    for _ in range(150):
        granted = lease(job)
        held = ev.HeldLease(granted.task, granted.token)
        job.handle(ev.TaskFailed(WORKER, held, Failure("USER_CODE", "boom"), True), 0.0)
    view = job.view(0.0)
    assert len(view.dead_letters) == 100
    assert [counts.dead for counts in view.tasks.values()] == [150]


# --- instances ----------------------------------------------------------------------------------


def test_the_end_of_a_replaced_instance_is_not_taken_for_that_of_its_successor() -> None:
    """Somebody started a second process for the worker; the platform knows the first alone."""
    job = joined(JobStateMachine(SETTINGS, DATA))
    newcomer = InstanceId("0b")
    job.handle(ev.WorkerRegistered(WORKER, newcomer, "host", 2), 1.0)
    job.handle(ev.WorkerReady(WORKER, newcomer), 1.0)
    effects = job.handle(ev.InstanceExited(WORKER, INSTANCE, 0, None, False, attempt=0), 2.0)
    assert not any(isinstance(effect, fx.StartWorker) for effect in effects)
    (granted,) = job.handle(ev.LeaseRequested(WORKER, newcomer), 2.0)
    assert isinstance(granted, fx.LeaseGranted)


def test_a_worker_that_makes_up_ever_new_instances_adds_nothing_any_more() -> None:
    job = joined(JobStateMachine(SETTINGS, DATA))
    effects: list[fx.Effect] = []
    for number in range(1000):
        made_up = InstanceId(f"made-up-{number}")
        effects += job.handle(ev.WorkerRegistered(WORKER, made_up, "host", 1), 1.0)
        effects += job.handle(ev.WorkerReady(WORKER, made_up), 1.0)
    logged = Counter(effect.kind for effect in effects if isinstance(effect, fx.LogEvent))
    assert logged["WorkerStarted"] == logged["WorkerReady"] == MOST_INSTANCES - 1  # and the first
    assert logged["InstanceRefused"] == 1
    assert {effect.reason for effect in effects if isinstance(effect, fx.LeaveJob)} == {"replaced"}
    # The one that the platform starts next is as good as any.
    last, following = InstanceId(f"made-up-{MOST_INSTANCES - 2}"), InstanceId("0b")
    effects = job.handle(ev.InstanceExited(WORKER, last, None, 9, True, attempt=0), 2.0)
    assert fx.StartWorker(WORKER, 1) in effects
    job.handle(ev.WorkerRegistered(WORKER, following, "host", 2), 3.0)
    job.handle(ev.WorkerReady(WORKER, following), 3.0)
    (granted,) = job.handle(ev.LeaseRequested(WORKER, following), 3.0)
    assert isinstance(granted, fx.LeaseGranted)


def test_warnings_without_end_are_bounded() -> None:
    job = joined(JobStateMachine(SETTINGS, DATA))
    warned = 0
    for number in range(1000):
        effects = job.handle(ev.WorkerReady(WORKER, INSTANCE, (f"lacks {number}",)), 1.0)
        warned += sum(isinstance(it, fx.LogEvent) for it in effects)
    assert warned == len(job.view(1.0).warnings) == MOST_WARNINGS


def test_an_event_names_the_cause_that_the_platform_knows() -> None:
    job = joined(JobStateMachine(SETTINGS, DATA))
    exited = ev.InstanceExited(
        WORKER, INSTANCE, 143, None, True, attempt=0, cause="its node was drained"
    )
    lines = [it.message for it in job.handle(exited, 2.0) if isinstance(it, fx.LogEvent)]
    assert "Worker 0 (host, pid 1) was preempted: its node was drained; exit code 143." in lines
    (worker,) = job.view(3.0).workers
    assert "its node was drained" in worker.last_exit


# --- defects -------------------------------------------------------------------------------


def test_a_contradiction_raises_with_the_story_attached() -> None:
    job = joined(JobStateMachine(SETTINGS, DATA))
    for second in range(100):
        job.handle(ev.Tick(), float(second))
    surprise = ev.ParametersFrozen("final", Version(7))
    with pytest.raises(InvariantViolation, match="'final'") as caught:
        job.handle(surprise, 100.0)
    assert caught.value.history[-1] == (100.0, surprise)
    assert len(caught.value.history) == EVENTS_REMEMBERED
    assert "ParametersFrozen" in str(caught.value)


def test_an_output_that_nobody_asked_for_raises() -> None:
    job = joined(JobStateMachine(SETTINGS, DATA))
    with pytest.raises(InvariantViolation, match="output"):
        job.handle(ev.OutputFinished(), 0.0)


def test_a_frozen_version_that_comes_too_late_is_released() -> None:
    job = joined(JobStateMachine(SETTINGS, DATA))
    job.handle(ev.StopRequested("enough"), 0.0)
    assert job.handle(ev.ParametersFrozen("evaluation-0", Version(1)), 0.0) == [
        fx.ReleaseFrozen("evaluation-0")
    ]


def test_a_job_needs_data() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        JobStateMachine(SETTINGS, (0, 0))


@pytest.mark.parametrize(
    ("name", "value"),
    [("records_per_task", 0), ("num_epochs", 0), ("max_workers", 0), ("min_workers", 2)],
)
def test_settings_that_make_no_sense_are_refused(name: str, value: int) -> None:
    with pytest.raises(ValueError, match="workers" if "workers" in name else name):
        replace(SETTINGS, **{name: value})


# --- curves and rates ----------------------------------------------------------------------


def test_the_curve_of_the_loss_is_thinned_to_means_and_ends_with_the_last() -> None:
    job = joined(JobStateMachine(replace(SETTINGS, records_per_task=20, num_epochs=1), (20,)))
    granted = lease(job)
    points = []
    for index in range(10):
        effects = job.handle(applied(granted, index, index + 1, float(index)), 0.1 * index)
        points += [effect for effect in effects if isinstance(effect, fx.LogScalar)]
    held = ev.HeldLease(granted.task, granted.token)
    effects = job.handle(ev.TaskCompleted(WORKER, held, 10, 10, 20, 20, 1.0), 1.0)
    points += [effect for effect in effects if isinstance(effect, fx.LogScalar)]
    assert points == [
        fx.LogScalar("loss", Version(1), 0.0),
        fx.LogScalar("loss", Version(6), 3.0),  # of 1, 2, 3, 4, 5
        fx.LogScalar("loss", Version(10), 7.5),  # of 6, 7, 8, 9
    ]


def test_the_shown_loss_is_smooth_and_starts_as_nan() -> None:
    job = joined(JobStateMachine(SETTINGS, DATA))
    assert math.isnan(job.view(0.0).progress.loss)
    granted = lease(job)
    job.handle(applied(granted, 0, 1, 1.0), 0.0)
    assert job.view(0.0).progress.loss == 1.0
    job.handle(applied(granted, 1, 2, 0.0), 0.0)
    assert job.view(0.0).progress.loss == pytest.approx(0.95)


def test_the_rate_is_of_the_last_seconds_and_gives_the_time_left() -> None:
    job = joined(JobStateMachine(replace(SETTINGS, records_per_task=400, num_epochs=1), (400,)))
    granted = lease(job)
    assert job.view(0.0).progress.eta_s < 0
    for second in range(1, 31):
        job.handle(applied(granted, 2 * second, second, 1.0), float(second))
        job.handle(applied(granted, 2 * second + 1, second, 1.0), float(second) + 0.5)
    view = job.view(31.0)
    assert view.progress.records_per_s == pytest.approx(4.0, rel=0.05)
    assert view.workers[0].records_per_s == pytest.approx(4.0, rel=0.05)
    assert view.progress.eta_s == pytest.approx((400 - 120) / 4, rel=0.05)
    assert view.staleness_mean == 3.0
    assert job.view(60.0).progress.records_per_s == 0.0


def test_a_clock_that_goes_back_does_not_undo_anything() -> None:
    """Callers read the clock before they queue for the job; a later one may come first."""
    job = joined(JobStateMachine(SETTINGS, DATA), now=10.0)
    job.handle(ev.Tick(), 12.0)
    job.handle(ev.HeartbeatReceived(WORKER, INSTANCE, (), "IDLE"), 11.0)
    view = job.view(12.0)
    assert view.seconds == 2.0
    assert view.workers[0].heartbeat_age_s == 0.0


def test_time_stands_still_when_the_end_is_decided() -> None:
    job = joined(JobStateMachine(SETTINGS, DATA))
    job.handle(ev.StopRequested(""), 5.0)
    job.handle(ev.InstanceExited(WORKER, INSTANCE, 0, None, False), 9.0)
    assert job.view(20.0).seconds == 5.0


@pytest.mark.parametrize(
    ("event", "attempt_counts"),
    [
        (ev.InstanceExited(WORKER, INSTANCE, 1, None, False, attempt=0), True),
        (ev.InstanceExited(WORKER, None, 1, None, False, attempt=0), True),
        (ev.InstanceExited(WORKER, INSTANCE, 1, None, False), True),
        (ev.InstanceExited(WORKER, None, 1, None, False), True),
        (ev.InstanceExited(WORKER, InstanceId("0z"), 1, None, False), False),
        (ev.InstanceExited(WORKER, None, 1, None, False, attempt=3), False),
        (ev.InstanceExited(WorkerId(5), None, 1, None, False), False),
    ],
)
def test_only_the_end_of_the_present_instance_counts(
    event: ev.InstanceExited, attempt_counts: bool
) -> None:
    job = joined(JobStateMachine(SETTINGS, DATA))
    job.handle(event, 1.0)
    assert job.view(1.0).worker_failures == int(attempt_counts)


def test_sums_of_an_evaluation_outlive_the_master_to_the_last_bit() -> None:
    """Also what JSON has no words for, and integers that no float holds."""
    settings = job_settings(JobType.EVALUATE, records_per_task=4)
    numbers = (math.inf, -math.inf, -0.0, 0.1, 2.0**60, 5e-324)
    flags = (2**62 + 1, 3)
    states = (
        ev.MetricState("odd", (ev.Addable("float64", (2, 3), numbers),)),
        ev.MetricState("unknown", (ev.Addable("float32", (), (math.nan,)),)),
        ev.MetricState("seen", (ev.Addable("int64", (2,), flags),)),
    )
    job = joined(JobStateMachine(settings, (4,)))
    held = lease(job)
    done = ev.TaskCompleted(WORKER, ev.HeldLease(held.task, held.token), 1, 0, 4, 4, 0.1, states)
    job.handle(done, 0.0)
    saved = json.dumps(job.snapshot(), allow_nan=False)
    summary = lease(joined(JobStateMachine.restore(settings, (4,), (), json.loads(saved))))
    # By their words: -0.0 equals 0.0, and NaN nothing.
    assert repr(summary.metric_states) == repr(states) == repr(lease(job).metric_states)


def test_a_push_of_several_minibatches_counts_as_many() -> None:
    """Local steps: steps, staleness and the task's count are of minibatches, not of pushes."""
    job = joined(JobStateMachine(replace(SETTINGS, records_per_task=20), (20,)))
    granted = lease(job)
    job.handle(replace(applied(granted, 0, 1, 6.0), staleness=0), 1.0)
    pushed = replace(applied(granted, 1, 4, 2.0), minibatches=3, records=6, staleness=4)
    job.handle(pushed, 1.5)
    view = job.view(2.0)
    assert (view.progress.steps, view.progress.parameter_version) == (4, 4)
    assert view.workers[0].steps == 4
    assert view.staleness_mean == 3.0
    (task,) = (task for r in job.snapshot()["ledger"]["rounds"] for task in r["open"])
    assert task["minibatches"] == 4
