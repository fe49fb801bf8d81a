"""What a job keeps in a snapshot, and continues with."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fakes.job_settings import job_settings
from joined_job import CONTEXT, DATA, SETTINGS, WORKER, join_worker, lease, minibatch_applied

from edl_master.core import effects as fx
from edl_master.core import events as ev
from edl_master.core import ledger
from edl_master.core.failure import Failure
from edl_master.core.identifiers import AppliedCount, ParameterCounts, Version
from edl_master.core.interruption import Interruption
from edl_master.core.job import JobStateMachine
from edl_master.core.metric_states import Addable, MetricState, array_to_json
from edl_master.core.mixing import Mixing
from edl_master.core.settings import JobSettings, JobType
from edl_master.reporting.status_codec import status_to


def a_snapshot() -> dict[str, Any]:
    job = join_worker(JobStateMachine(SETTINGS, DATA))
    job.handle(minibatch_applied(lease(job), 1, 0.5), 0.0)
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
        (replace(SETTINGS, mixing=Mixing(2)), DATA, "mixing"),
        (replace(SETTINGS, type=JobType.PREDICT), DATA, "type"),
    ],
)
def test_a_snapshot_of_another_job_is_refused(
    settings: JobSettings, data: tuple[int, ...], what: str
) -> None:
    with pytest.raises(ValueError, match=rf"another job: {what} was"):
        JobStateMachine.restore(settings, data, (), a_snapshot())


def test_fewer_epochs_than_had_begun_are_refused() -> None:
    job = join_worker(JobStateMachine(replace(SETTINGS, num_epochs=3), (4,)))
    for _ in range(2):
        granted = lease(job)
        held = ev.HeldLease(granted.task, granted.token)
        job.handle(ev.TaskCompleted(WORKER, held, 2, 2, 4, 4), 0.0)
    with pytest.raises(ValueError, match="epoch 3 had begun"):
        JobStateMachine.restore(replace(SETTINGS, num_epochs=2), (4,), (), job.snapshot())


def test_epochs_that_are_done_are_whole_ones_also_in_an_export() -> None:
    job, done = join_worker(JobStateMachine(SETTINGS, (8,))), []
    short = replace(SETTINGS, export_only=True)
    for _ in range(4):  # two tasks in each of two epochs
        granted = lease(job)
        held = ev.HeldLease(granted.task, granted.token)
        job.handle(ev.TaskCompleted(WORKER, held, 2, 2, 4, 4), 0.0)
        exported = JobStateMachine.restore(short, (8,), (), job.snapshot())
        exported.handle(ev.Tick(), 0.0)
        done.append([each.view(0.0).progress.epochs_done for each in (job, exported)])
    assert done == [[0, 0], [1, 1], [1, 1], [2, 2]]


def test_examples_are_counted_beside_records_and_a_difference_is_told_once() -> None:
    job = join_worker(JobStateMachine(SETTINGS, DATA))
    told: list[fx.LogEvent] = []
    for examples in (4, 3, 4, 6):
        granted = lease(job)
        held = ev.HeldLease(granted.task, granted.token)
        length = sum(part.stop - part.start for part in granted.records)
        done = ev.TaskCompleted(WORKER, held, 2, 2, length, examples - 4 + length)
        effects = job.handle(done, 0.0)
        told += [e for e in effects if isinstance(e, fx.LogEvent) and e.kind == "ExamplesDiffer"]
        saved = json.loads(json.dumps(job.snapshot()))
        job = join_worker(JobStateMachine.restore(SETTINGS, DATA, (), saved))
    assert [event.facts for event in told] == [{"records": "4", "examples": "3"}]
    view = job.view(0.0)
    assert (view.examples, view.examples_of) == (15, 14)


def test_no_number_that_a_worker_makes_up_keeps_others_from_the_status() -> None:
    """Sums over a job would not fit into the message that all clients read."""
    job, most = join_worker(JobStateMachine(SETTINGS, DATA)), 2**64 - 1
    for _ in range(3):
        held = ev.HeldLease((granted := lease(job)).task, granted.token)
        job.handle(ev.TaskCompleted(WORKER, held, 2, 2, most, most), 0.0)
    assert status_to(job.view(0.0), CONTEXT).examples < 2**40


def test_records_that_a_worker_makes_up_do_not_count_beyond_its_task() -> None:
    job = join_worker(JobStateMachine(SETTINGS, DATA))
    granted = lease(job)
    for index in range(50):
        made_up = replace(minibatch_applied(granted, index + 1, 0.5), records=2**32 - 1)
        job.handle(made_up, float(index))
    view = job.view(50.0)
    assert view.records_trained == 4
    assert view.progress.records_per_s <= 4
    assert view.progress.mean_records_per_s <= 4


@pytest.mark.parametrize("reported", [0, 1, 2])
def test_minibatches_that_no_report_named_before_the_restart_are_counted(reported: int) -> None:
    job = join_worker(JobStateMachine(SETTINGS, DATA))
    granted = lease(job)
    for version in range(1, reported + 1):
        job.handle(minibatch_applied(granted, version, 0.5), 0.0)
    in_the_model = ParameterCounts(Version(2), {granted.task: AppliedCount(2, 4)})
    again = JobStateMachine.restore(SETTINGS, DATA, (), job.snapshot(), in_the_model)
    assert again.view(0.0).records_trained == 4


def test_a_snapshot_of_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="format 99"):
        JobStateMachine.restore(SETTINGS, DATA, (), a_snapshot() | {"format": 99})


@pytest.mark.parametrize(("asked", "wanted"), [((1, 1), (1, 3)), ((1, 2), (1, 2))])
def test_scaling_outlives_the_master_unless_other_numbers_are_asked(
    asked: tuple[int, int], wanted: tuple[int, int]
) -> None:
    job = join_worker(JobStateMachine(SETTINGS, DATA))
    job.handle(ev.ScaleRequested(1, 3), 0.0)
    settings = replace(SETTINGS, min_workers=asked[0], max_workers=asked[1])
    view = JobStateMachine.restore(settings, DATA, (), job.snapshot()).view(0.0)
    assert (view.min_workers, view.max_workers) == wanted


def test_dead_letters_and_attempts_outlive_the_master() -> None:
    rules = replace(SETTINGS, allow_dead_letters=True, task_attempts=2)
    job = join_worker(JobStateMachine(rules, DATA))
    failure = Failure("DATA_DAMAGED", "bad CRC", detail="Traceback")
    for permanent in (True, False):
        granted = lease(job)
        held = ev.HeldLease(granted.task, granted.token)
        job.handle(ev.TaskFailed(WORKER, held, failure, permanent), 0.0)
        if permanent:
            job.handle(ev.AppliedCounted(granted.task, AppliedCount()), 0.0)
    saved = json.loads(json.dumps(job.snapshot()))
    again = join_worker(JobStateMachine.restore(rules, DATA, (), saved))
    assert again.view(0.0).dead_letters == job.view(0.0).dead_letters
    granted = lease(again)  # failed once before the restart; once more is too often
    held = ev.HeldLease(granted.task, granted.token)
    again.handle(ev.TaskFailed(WORKER, held, failure, permanent=False), 0.0)
    effects = again.handle(ev.AppliedCounted(granted.task, AppliedCount()), 0.0)
    assert "TaskDeadLettered" in [e.kind for e in effects if isinstance(e, fx.LogEvent)]


@pytest.mark.parametrize("last_of_its_round", [False, True])
def test_what_a_dead_letter_left_in_the_model_is_counted(last_of_its_round: bool) -> None:
    """The parameters say it: a report may be on its way, and arrives later, or never."""
    rules = replace(SETTINGS, allow_dead_letters=True, num_epochs=1)
    data = (4,) if last_of_its_round else (4, 4)
    job = join_worker(JobStateMachine(rules, data))
    granted = lease(job)
    held = ev.HeldLease(granted.task, granted.token)
    job.handle(minibatch_applied(granted, 1, 0.5), 0.0)
    effects = job.handle(ev.TaskFailed(WORKER, held, Failure("USER_CODE", "boom"), True), 0.0)
    assert [e for e in effects if isinstance(e, fx.CountApplied | fx.CloseTask)] == [
        fx.CountApplied(granted.task)
    ]
    # A snapshot of this moment has the task among the open ones, as the parameters do.
    assert job.snapshot()["ledger"]["rounds"][0]["open"]
    effects = job.handle(ev.AppliedCounted(granted.task, AppliedCount(2, 4)), 0.0)
    assert fx.CloseTask(granted.task) in effects
    said = next(e for e in effects if isinstance(e, fx.LogEvent))
    assert "4 of its 4 records are in the model" in said.message
    job.handle(minibatch_applied(granted, 2, 0.5), 0.0)
    saved = json.loads(json.dumps(job.snapshot()))
    for each in (job, JobStateMachine.restore(rules, data, (), saved)):
        view = each.view(0.0)
        assert (view.records_trained, view.dead_letters[0].records_trained) == (4, 4)
        assert view.progress.records_done == 4
        assert view.progress.epochs_done == last_of_its_round


def test_a_dead_letter_has_no_part_in_the_number_of_examples() -> None:
    rules = replace(SETTINGS, allow_dead_letters=True, num_epochs=1)
    job = join_worker(JobStateMachine(rules, (4, 4)))
    granted = lease(job)
    held = ev.HeldLease(granted.task, granted.token)
    job.handle(ev.TaskFailed(WORKER, held, Failure("USER_CODE", "boom"), True), 0.0)
    job.handle(ev.AppliedCounted(granted.task, AppliedCount(1, 2)), 0.0)
    granted = lease(job)
    held = ev.HeldLease(granted.task, granted.token)
    job.handle(ev.TaskCompleted(WORKER, held, 2, 2, 4, 3), 0.0)
    view = job.view(0.0)
    assert (view.examples, view.examples_of, view.records_trained) == (3, 4, 6)


def test_a_report_that_comes_when_the_job_is_failing_counts_in_its_dead_letter() -> None:
    job = join_worker(JobStateMachine(replace(SETTINGS, num_epochs=1), (4,)))
    granted = lease(job)
    held = ev.HeldLease(granted.task, granted.token)
    job.handle(ev.TaskFailed(WORKER, held, Failure("USER_CODE", "boom"), True), 0.0)
    job.handle(minibatch_applied(granted, 1, 0.5), 0.0)
    view = job.view(0.0)
    assert (view.records_trained, view.dead_letters[0].records_trained) == (2, 2)


def test_a_report_that_comes_after_the_end_counts_as_in_the_last_checkpoint() -> None:
    job = join_worker(JobStateMachine(SETTINGS, DATA))
    granted = lease(job)
    job.handle(ev.StopRequested("asked"), 0.0)
    job.handle(ev.InstanceExited(WORKER, None, 0, None, False), 0.0)
    assert job.view(0.0).phase is fx.JobPhase.CANCELLED
    job.handle(minibatch_applied(granted, 1, 0.5), 0.0)
    view = job.view(0.0)
    assert (view.records_trained, view.progress.steps) == (2, 1)


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
    job = join_worker(JobStateMachine(rules, DATA))
    granted = lease(job)
    saved = json.loads(json.dumps(job.snapshot()))
    counts = ParameterCounts(Version(3), {granted.task: AppliedCount(1, 2)})
    again = join_worker(JobStateMachine.restore(rules, DATA, (), saved, counts))
    view = again.view(0.0)
    assert (view.records_trained, view.progress.steps) == (2, 1)
    assert view.progress.parameter_version == 3
    later = lease(again)
    held = ev.HeldLease(later.task, later.token)
    again.handle(ev.TaskFailed(WORKER, held, Failure("USER_CODE", "boom"), True), 0.0)
    again.handle(ev.AppliedCounted(later.task, AppliedCount(1, 2)), 0.0)
    assert again.view(0.0).dead_letters[0].records_trained == 2


def test_dead_letters_are_bounded_and_all_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MAX_DEAD_LETTERS", 120)
    rules = replace(SETTINGS, allow_dead_letters=True, num_epochs=1)
    job = join_worker(JobStateMachine(rules, (4 * 150,)))
    for _ in range(150):
        granted = lease(job)
        held = ev.HeldLease(granted.task, granted.token)
        failure = Failure("USER_CODE", "boom", detail="Traceback")
        job.handle(ev.TaskFailed(WORKER, held, failure, True), 0.0)
        job.handle(ev.AppliedCounted(granted.task, AppliedCount()), 0.0)
    view = job.view(0.0)
    details = [letter.failure.detail for letter in view.dead_letters]
    assert details == ["Traceback"] * 100 + [""] * 20
    assert [counts.dead for counts in view.tasks.values()] == [150]


def test_sums_of_an_evaluation_outlive_the_master_to_the_last_bit() -> None:
    """So do values that JSON cannot express, and integers that no float holds."""
    settings = job_settings(JobType.EVALUATE, records_per_task=4)
    numbers = np.array([[math.inf, -math.inf, -0.0], [0.1, 2.0**60, 5e-324]])
    states = (
        MetricState("odd", (Addable("float64", numbers),)),
        MetricState("unknown", (Addable("float32", np.array(math.nan, np.float32)),)),
        MetricState("seen", (Addable("int64", np.array([2**62 + 1, 3])),)),
    )
    job = join_worker(JobStateMachine(settings, (4,)))
    held = lease(job)
    done = ev.TaskCompleted(WORKER, ev.HeldLease(held.task, held.token), 1, 0, 4, 4, states)
    job.handle(done, 0.0)
    saved = json.dumps(job.snapshot(), allow_nan=False, default=array_to_json)
    summary = lease(join_worker(JobStateMachine.restore(settings, (4,), (), json.loads(saved))))
    # By their words: -0.0 equals 0.0, and NaN nothing.
    assert repr(summary.metric_states) == repr((states,)) == repr(lease(job).metric_states)
