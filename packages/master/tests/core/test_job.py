"""What the transcripts do not say well: instances, defects, curves, rates, odd clocks."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
from joined_job import DATA, INSTANCE, SETTINGS, WORKER, join_worker, lease, minibatch_applied

from edl_master.core import effects as fx
from edl_master.core import events as ev
from edl_master.core.identifiers import InstanceId, Version, WorkerId
from edl_master.core.job import EVENTS_REMEMBERED, JobStateMachine
from edl_master.core.job_phases import InvariantViolation
from edl_master.core.outcome import MAX_WARNINGS
from edl_master.core.worker import MAX_INSTANCES

# --- instances ----------------------------------------------------------------------------------


def test_the_end_of_a_replaced_instance_is_not_taken_for_that_of_its_successor() -> None:
    """A second process was started for the worker; the platform knows only the first."""
    job = join_worker(JobStateMachine(SETTINGS, DATA))
    newcomer = InstanceId("0b")
    job.handle(ev.WorkerRegistered(WORKER, newcomer, "host", 2), 1.0)
    job.handle(ev.WorkerReady(WORKER, newcomer), 1.0)
    effects = job.handle(ev.InstanceExited(WORKER, INSTANCE, 0, None, False, attempt=0), 2.0)
    assert not any(isinstance(effect, fx.StartWorker) for effect in effects)
    (granted,) = job.handle(ev.LeaseRequested(WORKER, newcomer), 2.0)
    assert isinstance(granted, fx.LeaseGranted)


def test_a_worker_that_makes_up_ever_new_instances_adds_nothing_any_more() -> None:
    job = join_worker(JobStateMachine(SETTINGS, DATA))
    effects: list[fx.Effect] = []
    for number in range(1000):
        made_up = InstanceId(f"made-up-{number}")
        effects += job.handle(ev.WorkerRegistered(WORKER, made_up, "host", 1), 1.0)
        effects += job.handle(ev.WorkerReady(WORKER, made_up), 1.0)
    logged = Counter(effect.kind for effect in effects if isinstance(effect, fx.LogEvent))
    assert logged["WorkerStarted"] == logged["WorkerReady"] == MAX_INSTANCES - 1  # and the first
    assert logged["InstanceRefused"] == 1
    assert {effect.reason for effect in effects if isinstance(effect, fx.LeaveJob)} == {"replaced"}
    # The one that the platform starts next is as good as any.
    last, following = InstanceId(f"made-up-{MAX_INSTANCES - 2}"), InstanceId("0b")
    effects = job.handle(ev.InstanceExited(WORKER, last, None, 9, True, attempt=0), 2.0)
    assert fx.StartWorker(WORKER, 1) in effects
    job.handle(ev.WorkerRegistered(WORKER, following, "host", 2), 3.0)
    job.handle(ev.WorkerReady(WORKER, following), 3.0)
    (granted,) = job.handle(ev.LeaseRequested(WORKER, following), 3.0)
    assert isinstance(granted, fx.LeaseGranted)


def test_warnings_without_end_are_bounded() -> None:
    job = join_worker(JobStateMachine(SETTINGS, DATA))
    warned = 0
    for number in range(1000):
        effects = job.handle(ev.WorkerReady(WORKER, INSTANCE, (f"lacks {number}",)), 1.0)
        warned += sum(isinstance(it, fx.LogEvent) for it in effects)
    assert warned == len(job.view(1.0).warnings) == MAX_WARNINGS


def test_an_event_names_the_cause_that_the_platform_knows() -> None:
    job = join_worker(JobStateMachine(SETTINGS, DATA))
    exited = ev.InstanceExited(
        WORKER, INSTANCE, 143, None, True, attempt=0, cause="its node was drained"
    )
    lines = [it.message for it in job.handle(exited, 2.0) if isinstance(it, fx.LogEvent)]
    assert "Worker 0 (host, pid 1) was preempted: its node was drained; exit code 143." in lines
    (worker,) = job.view(3.0).workers
    assert "its node was drained" in worker.last_exit


# --- defects -------------------------------------------------------------------------------


def test_a_contradiction_raises_with_the_story_attached() -> None:
    job = join_worker(JobStateMachine(SETTINGS, DATA))
    for second in range(100):
        job.handle(ev.Tick(), float(second))
    surprise = ev.ParametersFrozen("final", Version(7))
    with pytest.raises(InvariantViolation, match="'final'") as caught:
        job.handle(surprise, 100.0)
    assert caught.value.history[-1] == (100.0, surprise)
    assert len(caught.value.history) == EVENTS_REMEMBERED
    assert "ParametersFrozen" in str(caught.value)


def test_an_output_that_was_not_requested_raises() -> None:
    job = join_worker(JobStateMachine(SETTINGS, DATA))
    with pytest.raises(InvariantViolation, match="output"):
        job.handle(ev.OutputFinished(), 0.0)


def test_a_frozen_version_that_comes_too_late_is_released() -> None:
    job = join_worker(JobStateMachine(SETTINGS, DATA))
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
    job = join_worker(JobStateMachine(replace(SETTINGS, records_per_task=20, num_epochs=1), (20,)))
    granted = lease(job)
    points = []
    for index in range(10):
        effects = job.handle(minibatch_applied(granted, index + 1, float(index)), 0.1 * index)
        points += [effect for effect in effects if isinstance(effect, fx.LogScalar)]
    held = ev.HeldLease(granted.task, granted.token)
    effects = job.handle(ev.TaskCompleted(WORKER, held, 10, 10, 20, 20), 1.0)
    points += [effect for effect in effects if isinstance(effect, fx.LogScalar)]
    assert points == [
        fx.LogScalar("loss", Version(1), 0.0),
        fx.LogScalar("loss", Version(6), 3.0),  # of 1, 2, 3, 4, 5
        fx.LogScalar("loss", Version(10), 7.5),  # of 6, 7, 8, 9
    ]


def test_the_shown_loss_is_smooth_and_starts_as_nan() -> None:
    job = join_worker(JobStateMachine(SETTINGS, DATA))
    assert math.isnan(job.view(0.0).progress.loss)
    granted = lease(job)
    job.handle(minibatch_applied(granted, 1, 1.0), 0.0)
    assert job.view(0.0).progress.loss == 1.0
    job.handle(minibatch_applied(granted, 2, 0.0), 0.0)
    assert job.view(0.0).progress.loss == pytest.approx(0.95)


def test_the_rate_is_of_the_last_seconds_and_gives_the_time_left() -> None:
    job = join_worker(
        JobStateMachine(replace(SETTINGS, records_per_task=400, num_epochs=1), (400,))
    )
    granted = lease(job)
    assert job.view(0.0).progress.eta_s < 0
    for second in range(1, 31):
        job.handle(minibatch_applied(granted, second, 1.0), float(second))
        job.handle(minibatch_applied(granted, second, 1.0), float(second) + 0.5)
    view = job.view(31.0)
    assert view.progress.records_per_s == pytest.approx(4.0, rel=0.05)
    assert view.workers[0].records_per_s == pytest.approx(4.0, rel=0.05)
    assert view.progress.eta_s == pytest.approx((400 - 120) / 4, rel=0.05)
    assert view.staleness_mean == 3.0
    assert job.view(60.0).progress.records_per_s == 0.0


def test_a_clock_that_goes_back_does_not_undo_anything() -> None:
    """Callers read the clock before they queue for the job; a later one may come first."""
    job = join_worker(JobStateMachine(SETTINGS, DATA), now=10.0)
    job.handle(ev.Tick(), 12.0)
    job.handle(ev.HeartbeatReceived(WORKER, INSTANCE, (), "IDLE"), 11.0)
    view = job.view(12.0)
    assert view.seconds == 2.0
    assert view.workers[0].heartbeat_age_s == 0.0


def test_time_stands_still_when_the_end_is_decided() -> None:
    job = join_worker(JobStateMachine(SETTINGS, DATA))
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
    job = join_worker(JobStateMachine(SETTINGS, DATA))
    job.handle(event, 1.0)
    assert job.view(1.0).worker_failures == int(attempt_counts)


def test_a_push_of_several_minibatches_counts_as_many() -> None:
    """Local steps: steps, staleness and the task's count are of minibatches, not of pushes."""
    job = join_worker(JobStateMachine(replace(SETTINGS, records_per_task=20), (20,)))
    granted = lease(job)
    job.handle(replace(minibatch_applied(granted, 1, 6.0), staleness=0), 1.0)
    pushed = replace(minibatch_applied(granted, 4, 2.0), minibatches=3, records=6, staleness=4)
    job.handle(pushed, 1.5)
    view = job.view(2.0)
    assert (view.progress.steps, view.progress.parameter_version) == (4, 4)
    assert view.workers[0].steps == 4
    assert view.staleness_mean == 3.0
    (task,) = (task for r in job.snapshot()["ledger"]["rounds"] for task in r["open"])
    assert task["minibatches"] == 4
