"""Whole training jobs over gRPC: every record trains the counting model exactly once per epoch."""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fakes.jobs import (
    DEADLINE_S,
    RunningJob,
    intervals,
    set_update,
    trained_weights,
    training_spec,
    write_numbers,
)
from fakes.threads import Died

from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2, parameters_pb2, task_pb2
from edl_runtime.local import job_directory
from edl_testing.fake_worker import FakeWorker, WorkerBehavior

SIZES = (37, 64, 5)
RECORDS = sum(SIZES)
EPOCHS = 2
MINIBATCHES = 11 + 19 + 2
"""In an epoch: tasks are of 10 records, minibatches of 4, and none goes on in another file."""


def events_of(job_dir: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in (job_dir / "events.jsonl").read_text().splitlines()]


def hold_for_a_checkpoint(job_dir: Path) -> Callable[[FakeWorker, int], None]:
    """A hook of workers: after ten minibatches they wait until a checkpoint is taken.

    So at least two are: this one, and the one of the end.
    """
    minibatches = itertools.count(1)

    def at_minibatch(worker: FakeWorker, minibatch: int) -> None:
        if next(minibatches) > 10:
            deadline = time.monotonic() + DEADLINE_S
            while "CheckpointTaken" not in (job_dir / "events.jsonl").read_text():
                assert time.monotonic() < deadline
                time.sleep(0.02)

    return at_minibatch


def check_exact(spec: job_pb2.JobSpec, status: job_pb2.JobStatus) -> None:
    assert np.array_equal(trained_weights(spec), np.full(RECORDS, float(EPOCHS)))
    assert status.state == job_pb2.SUCCEEDED
    assert status.records_trained == EPOCHS * RECORDS
    assert status.progress.steps == EPOCHS * MINIBATCHES
    assert 0 < status.progress.parameter_version <= EPOCHS * MINIBATCHES
    assert status.progress.epochs_done == EPOCHS
    assert status.progress.records_done == status.progress.records_total == EPOCHS * RECORDS
    assert not status.HasField("error")


@pytest.mark.parametrize("update", ["ASYNC", "SYNC", "BOUNDED"])
@pytest.mark.parametrize("workers", [1, 3])
def test_every_weight_is_the_number_of_epochs(tmp_path: Path, update: str, workers: int) -> None:
    spec = training_spec(tmp_path, SIZES)
    spec.workers.max = workers
    set_update(spec, update)
    behavior = WorkerBehavior(RECORDS, sync=update == "SYNC")
    with RunningJob(spec, tmp_path / "job", behavior) as job:
        assert job.wait() == 0
        check_exact(spec, job.app.report.status())
    assert behavior.errors == []
    exported = json.loads((Path(spec.output) / "info.json").read_text())
    assert exported["epochs"] == EPOCHS
    assert exported["records"] == EPOCHS * RECORDS


def test_pushes_that_are_repeated_change_nothing(tmp_path: Path) -> None:
    spec = training_spec(tmp_path, SIZES)
    behavior = WorkerBehavior(RECORDS, repeat_pushes=True)
    with RunningJob(spec, tmp_path / "job", behavior) as job:
        assert job.wait() == 0
        check_exact(spec, job.app.report.status())
    applied = behavior.outcomes.count(parameters_pb2.APPLIED)
    assert behavior.outcomes.count(parameters_pb2.ALREADY_APPLIED) == applied
    assert 2 * applied == len(behavior.outcomes)


def test_a_snapshot_is_not_written_before_the_events_that_it_follows(tmp_path: Path) -> None:
    """The next master goes on after them, so they would not be recorded again."""
    go = threading.Event()
    spec = training_spec(tmp_path, SIZES)
    behavior = WorkerBehavior(RECORDS, at_minibatch=lambda *_: go.wait(DEADLINE_S) and None)
    folder = tmp_path / "job"
    with RunningJob(spec, folder, behavior, intervals(flush_every_s=3600.0)) as job:
        deadline = time.monotonic() + DEADLINE_S
        while not list((folder / "snapshots").glob("counting-*")):
            assert time.monotonic() < deadline, "no snapshot"
            time.sleep(0.01)
        assert "WorkerReady" in {event["kind"] for event in events_of(folder)}
        go.set()
        assert job.wait() == 0


@pytest.mark.parametrize("update", ["ASYNC", "SYNC"])
def test_a_worker_that_returns_after_its_loss_changes_nothing(tmp_path: Path, update: str) -> None:
    """It died after its task's first minibatch; another one goes on with the second."""
    zombies: list[tuple[FakeWorker, task_pb2.LeaseRef, int | None]] = []
    rejected = threading.Event()

    def at_minibatch(worker: FakeWorker, minibatch: int) -> None:
        if not zombies and minibatch == 1:
            (lease,) = worker.held.values()
            zombies.append((worker, lease, worker.version))
            raise Died
        # The living wait until the dead one has tried, so that the job is not over before.
        assert not zombies or rejected.wait(DEADLINE_S)

    spec = training_spec(tmp_path, SIZES)
    set_update(spec, update)
    spec.training.grads_to_wait = 1
    behavior = WorkerBehavior(RECORDS, sync=update == "SYNC", at_minibatch=at_minibatch)
    with RunningJob(spec, tmp_path / "job", behavior) as job:
        with job.app._services.controller._changed:
            seen = job.app._services.controller._changed.wait_for(
                lambda: job.app._services.controller._job.view(0).preemptions == 1, DEADLINE_S
            )
        assert seen
        ((dead, lease, version),) = zombies
        zombie = FakeWorker(behavior, dead.instance, job.app.address)
        with zombie:
            zombie.incarnation, zombie.fingerprint = dead.incarnation, dead.fingerprint
            old = task_pb2.Lease(task=lease.task, token=lease.token)
            for minibatch in (0, 1, 2):
                zombie.version = version
                assert zombie.push(old, minibatch, [0]) == parameters_pb2.REFUSED
            assert not zombie.pull(old)
        rejected.set()
        assert job.wait() == 0
        status = job.app.report.status()
    check_exact(spec, status)
    assert status.preemptions == 1
    assert status.worker_failures == 0
    assert status.gradients_rejected == 3


def test_a_late_goodbye_of_a_former_instance_is_not_taken_for_its_successors(
    tmp_path: Path,
) -> None:
    """A pod that is deleted by force is gone before its process has ended."""
    said = threading.Event()

    def at_minibatch(worker: FakeWorker, minibatch: int) -> None:
        if not said.is_set():
            said.set()
            goodbye = task_pb2.ReturnRequest(
                worker_id=worker.id,
                incarnation=worker.incarnation,
                reason="terminated",
                leaving=True,
                instance="its predecessor",
            )
            worker.call(worker.tasks.Return, goodbye)

    spec = training_spec(tmp_path, SIZES)
    behavior = WorkerBehavior(RECORDS, at_minibatch=at_minibatch)
    with RunningJob(spec, tmp_path / "job", behavior) as job:
        assert job.wait() == 0
        status = job.app.report.status()
    check_exact(spec, status)
    assert status.preemptions == 0
    assert not any(worker.restarts for worker in status.workers)


def test_a_storm_of_kills_loses_and_repeats_nothing(tmp_path: Path) -> None:
    chance = random.Random(3)
    lock = threading.Lock()
    deaths = 0

    def at_minibatch(worker: FakeWorker, minibatch: int) -> None:
        nonlocal deaths
        with lock:
            if chance.random() < 0.3:
                deaths += 1
                raise Died

    spec = training_spec(tmp_path, SIZES)
    spec.workers.max = 3
    behavior = WorkerBehavior(RECORDS, repeat_pushes=True, at_minibatch=at_minibatch)
    with RunningJob(spec, tmp_path / "job", behavior) as job:
        assert job.wait() == 0
        status = job.app.report.status()
    assert deaths >= 10
    check_exact(spec, status)
    assert status.preemptions == deaths
    assert status.worker_failures == 0


def test_workers_asked_to_leave_hand_their_tasks_back(tmp_path: Path) -> None:
    asked: set[str] = set()

    def at_minibatch(worker: FakeWorker, minibatch: int) -> None:
        if len(asked) < 5 and minibatch == 1 and worker.instance.name not in asked:
            asked.add(worker.instance.name)
            worker.instance.asked.set()

    spec = training_spec(tmp_path, SIZES)
    behavior = WorkerBehavior(RECORDS, at_minibatch=at_minibatch)
    with RunningJob(spec, tmp_path / "job", behavior) as job:
        assert job.wait() == 0
        status = job.app.report.status()
    assert len(asked) == 5
    check_exact(spec, status)
    assert status.preemptions == 5
    assert status.records_replayed == 0


def test_evaluations_are_of_one_frozen_version(tmp_path: Path) -> None:
    spec = training_spec(tmp_path, SIZES)
    set_update(spec, "SYNC")
    spec.training.evaluation_steps = 3
    spec.validation_data.append(write_numbers(tmp_path / "validation", (20, 11)))
    behavior = WorkerBehavior(RECORDS, sync=True)
    with RunningJob(spec, tmp_path / "job", behavior) as job:
        assert job.wait() == 0
        status = job.app.report.status()
    check_exact(spec, status)
    # The last evaluation is of the final version, where each weight is the number of epochs.
    assert dict(status.metrics) == {"mean_weight": float(EPOCHS)}
    curves = {curve.name: curve.points for curve in status.curves}
    assert len(curves["mean_weight"]) >= 3
    steps = [point.step for point in curves["mean_weight"]]
    assert steps == sorted(steps)
    assert curves["loss"]
    exported = json.loads((Path(spec.output) / "info.json").read_text())
    assert exported["metrics"] == {"mean_weight": float(EPOCHS)}


@pytest.mark.parametrize("update", ["ASYNC", "SYNC"])
def test_a_stopped_job_goes_on_from_its_checkpoint(tmp_path: Path, update: str) -> None:
    stop, accepted = threading.Event(), threading.Event()
    minibatches = 0

    def at_minibatch(worker: FakeWorker, minibatch: int) -> None:
        nonlocal minibatches
        minibatches += 1
        if minibatches >= 20:  # the job must not be over before it is stopped
            stop.set()
            accepted.wait(DEADLINE_S)

    spec = training_spec(tmp_path, SIZES)
    set_update(spec, update)
    spec.training.checkpoint_dir = str(tmp_path / "checkpoints")
    spec.training.checkpoint_steps = 5
    behavior = WorkerBehavior(RECORDS, sync=update == "SYNC", at_minibatch=at_minibatch)
    with RunningJob(spec, tmp_path / "job", behavior) as job:
        assert stop.wait(DEADLINE_S)
        job.job.Stop(job_pb2.StopRequest(reason="a test"), timeout=200)
        accepted.set()
        assert job.wait() == 1
        stopped = job.app.report.status()
    assert stopped.state == job_pb2.CANCELLED
    assert 0 < stopped.records_trained < EPOCHS * RECORDS
    assert not Path(spec.output).exists()

    # The stop is on disk and binds every later master, until a user resumes the job.
    (tmp_path / "job" / job_directory.REQUESTS).unlink()
    behavior = WorkerBehavior(RECORDS, sync=update == "SYNC")
    with RunningJob(spec, tmp_path / "job", behavior) as job:
        assert job.wait() == 0
        status = job.app.report.status()
    check_exact(spec, status)
    assert len(behavior.outcomes) < EPOCHS * RECORDS / 4
    assert status.seconds > stopped.seconds
    assert status.master_restarts == 0, "this is no problem"
    (before,), (after,) = stopped.curves, status.curves
    assert list(after.points)[: len(before.points)] == list(before.points)
    steps = [point.step for point in after.points]
    assert steps == sorted(steps)
    kinds = [event["kind"] for event in events_of(tmp_path / "job")]
    assert "CheckpointRestored" in kinds
    numbers = [int(event["number"]) for event in events_of(tmp_path / "job")]
    assert numbers == list(range(1, len(numbers) + 1))


def test_the_model_of_a_stopped_job_is_exported_by_another_before_it_goes_on(
    tmp_path: Path,
) -> None:
    stop, accepted = threading.Event(), threading.Event()

    def at_minibatch(worker: FakeWorker, minibatch: int) -> None:
        if minibatch >= 2:  # the job must not be over before it is stopped
            stop.set()
            accepted.wait(DEADLINE_S)

    spec = training_spec(tmp_path, SIZES)
    behavior = WorkerBehavior(RECORDS, at_minibatch=at_minibatch)
    with RunningJob(spec, tmp_path / "job", behavior) as job:
        assert stop.wait(DEADLINE_S)
        with pytest.raises(EdlError) as caught, RunningJob(spec, tmp_path / "second", behavior):
            pass
        assert caught.value.code == ErrorCode.OUTPUT_EXISTS
        assert "job is going to write" in caught.value.what, "not only after it has trained"
        job.job.Stop(job_pb2.StopRequest(reason="a test"), timeout=DEADLINE_S)
        accepted.set()
        assert job.wait() == 1
        stopped = job.app.report.status()
    assert stopped.saved_version == stopped.progress.parameter_version > 0
    done = stopped.progress.records_done

    short = job_pb2.JobSpec()
    short.CopyFrom(spec)
    short.name = "counting-export"
    short.export.job, short.export.snapshots = spec.name, str(tmp_path / "job" / "snapshots")
    with RunningJob(short, tmp_path / "short", WorkerBehavior(RECORDS)) as job:
        assert job.wait() == 0
        status = job.app.report.status()
    assert status.progress.steps == stopped.progress.steps, "an export trains nothing"
    assert status.progress.epochs_done == 0
    assert json.loads((Path(spec.output) / "info.json").read_text())["epochs"] == 0
    assert trained_weights(spec).sum() == done

    (tmp_path / "job" / job_directory.REQUESTS).unlink()
    with RunningJob(spec, tmp_path / "job", WorkerBehavior(RECORDS)) as job:
        assert job.wait() == 0
        check_exact(spec, job.app.report.status())

    # Snapshots of a job that has succeeded are gone.
    short.output += "-late"
    with pytest.raises(EdlError) as caught, RunningJob(short, tmp_path / "late", behavior):
        pass
    assert caught.value.code == ErrorCode.MODEL_NOT_FOUND
    assert "no snapshot" in caught.value.what


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path: Path) -> None:
    spec = training_spec(tmp_path, SIZES)
    spec.training.checkpoint_dir = str(tmp_path / "checkpoints")
    spec.training.checkpoint_steps = 5
    spec.training.keep_checkpoints = 50
    hold = hold_for_a_checkpoint(tmp_path / "job")
    with RunningJob(spec, tmp_path / "job", WorkerBehavior(RECORDS, at_minibatch=hold)) as job:
        assert job.wait() == 0
    names = sorted(path.name for path in (tmp_path / "checkpoints").glob("counting-*"))
    assert len(names) >= 2
    (array,) = (tmp_path / "checkpoints" / names[-1]).glob("*.npy")
    content = bytearray(array.read_bytes())
    content[-1] ^= 1
    array.write_bytes(content)

    spec.output += "-again"
    with RunningJob(spec, tmp_path / "again", WorkerBehavior(RECORDS)) as job:
        assert job.wait() == 0
        check_exact(spec, job.app.report.status())
    kinds = [event["kind"] for event in events_of(tmp_path / "again")]
    assert kinds.index("CheckpointDamaged") < kinds.index("CheckpointRestored")


def test_status_events_and_curves_are_on_disk_at_the_end(tmp_path: Path) -> None:
    spec = training_spec(tmp_path, SIZES)
    with RunningJob(spec, tmp_path / "job", WorkerBehavior(RECORDS)) as job:
        assert job.wait() == 0
        status = job.app.report.status()
    written = json.loads((tmp_path / "job" / "status.json").read_text())
    assert written["state"] == "SUCCEEDED"
    assert written["finished_at"]
    assert int(written["records_trained"]) == status.records_trained
    master = json.loads((tmp_path / "job" / "master.json").read_text())
    assert master["incarnation"] == status.incarnation
    kinds = [event["kind"] for event in events_of(tmp_path / "job")]
    assert kinds[0] == "JobStarted"
    assert "JobSucceeded" in kinds
    assert list((tmp_path / "job" / "tensorboard").glob("events.out.tfevents.*"))
