"""Whole training jobs whose checkpoints are in a store."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fakes.jobs import DEADLINE_S, RunningJob, set_update, training_spec
from fakes.store import Trouble, empty_store, refuse, trouble
from test_training import EPOCHS, RECORDS, SIZES, check_exact, events_of, hold_for_a_checkpoint

from edl_master.adapters import store_calls
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2
from edl_testing.fake_worker import FakeWorker, WorkerBehavior


@pytest.fixture
def store() -> Iterator[str]:
    with empty_store():
        yield f"trouble://{uuid.uuid4().hex}/kept"


def spec_of(tmp_path: Path, store: str, update: str = "ASYNC") -> job_pb2.JobSpec:
    spec = training_spec(tmp_path, SIZES)
    set_update(spec, update)
    spec.training.checkpoint_dir = store
    spec.training.checkpoint_steps = 5
    return spec


def kinds(job_dir: Path) -> list[str]:
    return [event["kind"] for event in events_of(job_dir)]


def last_checkpoint(job: RunningJob) -> float:
    """Return the time from its metrics, in seconds since 1970."""
    name = "edl_checkpoint_last_success_timestamp_seconds"
    text = job.app.report.metrics().decode()
    return float(next(line for line in text.splitlines() if line.startswith(name)).split()[1])


def objects(store: str) -> list[str]:
    system, path = fsspec.core.url_to_fs(store)
    return sorted(found.removeprefix(f"{path}/") for found in system.find(path))


@pytest.mark.parametrize("update", ["ASYNC", "SYNC"])
def test_a_stopped_job_goes_on_elsewhere_from_what_is_in_the_store(
    tmp_path: Path, store: str, update: str
) -> None:
    stop, asked = threading.Event(), threading.Event()
    minibatches = 0

    def at_minibatch(worker: FakeWorker, minibatch: int) -> None:
        nonlocal minibatches
        minibatches += 1
        if minibatches >= 20:
            stop.set()
            assert asked.wait(DEADLINE_S)  # or the job might be over before

    spec = spec_of(tmp_path, store, update)
    behavior = WorkerBehavior(RECORDS, sync=update == "SYNC", at_minibatch=at_minibatch)
    with RunningJob(spec, tmp_path / "here", behavior) as job:
        assert stop.wait(DEADLINE_S)
        job.job.Stop(job_pb2.StopRequest(reason="a test"), timeout=200)
        asked.set()
        assert job.wait() == 1
        stopped = job.app.report.status()
    assert stopped.state == job_pb2.CANCELLED
    assert 0 < stopped.records_trained < EPOCHS * RECORDS
    assert "CheckpointTaken" in kinds(tmp_path / "here")
    assert not [path for path in (tmp_path / "here" / "checkpoints").glob("*") if path.is_dir()]

    over = time.time()
    there = threading.Event()
    noted: list[float] = []

    def before_its_own(worker: FakeWorker, minibatch: int) -> None:
        assert there.wait(DEADLINE_S)
        deadline = time.monotonic() + DEADLINE_S
        while not noted:
            assert time.monotonic() < deadline, "the time is not found"
            time.sleep(0.01)
            noted.extend(filter(None, [last_checkpoint(job)]))

    behavior = WorkerBehavior(RECORDS, sync=update == "SYNC", at_minibatch=before_its_own)
    with RunningJob(spec, tmp_path / "there", behavior) as job:
        there.set()
        assert job.wait() == 0
        check_exact(spec, job.app.report.status())
        assert noted[0] < over < last_checkpoint(job)
    assert len(behavior.outcomes) < EPOCHS * RECORDS / 4
    assert "CheckpointRestored" in kinds(tmp_path / "there")


def test_a_checkpoint_with_a_part_deleted_is_passed_over(tmp_path: Path, store: str) -> None:
    spec = spec_of(tmp_path, store)
    spec.training.keep_checkpoints = 50
    hold = hold_for_a_checkpoint(tmp_path / "here")
    with RunningJob(spec, tmp_path / "here", WorkerBehavior(RECORDS, at_minibatch=hold)) as job:
        assert job.wait() == 0
    names = sorted({path.partition("/")[0] for path in objects(store) if "/" in path})
    assert len(names) >= 2
    system, path = fsspec.core.url_to_fs(store)
    system.rm_file(f"{path}/{names[-1]}/array-0000.npy")

    spec.output += "-again"
    with RunningJob(spec, tmp_path / "there", WorkerBehavior(RECORDS)) as job:
        assert job.wait() == 0
        check_exact(spec, job.app.report.status())
    told = events_of(tmp_path / "there")
    (damaged,) = [event for event in told if event["kind"] == "CheckpointDamaged"]
    assert names[-1] in damaged["message"]
    assert "array-0000.npy is missing" in damaged["message"]
    (restored,) = [event for event in told if event["kind"] == "CheckpointRestored"]
    assert names[-2] in restored["message"]


def test_a_store_that_hangs_holds_up_neither_the_job_nor_its_snapshots(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first checkpoint sticks until it is given up; training goes on meanwhile."""
    monkeypatch.setattr(store_calls, "TIMEOUTS", store_calls.StoreTimeouts(call_s=2.0))
    going_on, stuck = threading.Event(), threading.Event()
    minibatches = applied_meanwhile = 0

    def get_stuck() -> None:
        stuck.set()
        going_on.wait(DEADLINE_S)

    def at_minibatch(worker: FakeWorker, minibatch: int) -> None:
        nonlocal minibatches, applied_meanwhile
        minibatches += 1
        if minibatches > 10:  # the job is not to end before its first checkpoint is on its way
            assert stuck.wait(DEADLINE_S)
        if stuck.is_set() and applied_meanwhile < 20:
            applied_meanwhile += 1
            # Until the store has been given up there is nothing to wait for but this.
            if applied_meanwhile == 20:
                deadline = time.monotonic() + DEADLINE_S
                while "CheckpointFailed" not in kinds(tmp_path / "here"):
                    assert time.monotonic() < deadline
                    time.sleep(0.05)

    trouble("00000001/array", get_stuck)
    spec = spec_of(tmp_path, store)
    try:
        with RunningJob(
            spec, tmp_path / "here", WorkerBehavior(RECORDS, at_minibatch=at_minibatch)
        ) as job:
            assert job.wait() == 0
            check_exact(spec, job.app.report.status())
    finally:
        going_on.set()
    assert applied_meanwhile == 20
    told = events_of(tmp_path / "here")
    failed = next(event for event in told if event["kind"] == "CheckpointFailed")
    assert failed["severity"] == "warning"
    assert "made no progress" in failed["message"]
    assert "CheckpointTaken" in [event["kind"] for event in told], "the later ones are kept"
    assert not [path for path in objects(store) if path.startswith("counting-00000001")]


def test_a_store_that_never_takes_one_costs_the_job_nothing(tmp_path: Path, store: str) -> None:
    trouble("put", refuse)
    spec = spec_of(tmp_path, store)
    with RunningJob(spec, tmp_path / "here", WorkerBehavior(RECORDS)) as job:
        assert job.wait() == 0
        check_exact(spec, job.app.report.status())
    told = kinds(tmp_path / "here")
    assert "CheckpointFailed" in told
    assert "CheckpointTaken" not in told


def test_a_store_that_cannot_be_written_is_found_before_training(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_it(*_: Any, **__: Any) -> None:
        raise PermissionError("not yours")

    monkeypatch.setattr(Trouble, "pipe_file", refuse_it)
    with pytest.raises(EdlError) as caught:
        RunningJob(spec_of(tmp_path, store), tmp_path / "here", WorkerBehavior(RECORDS))
    assert caught.value.code == ErrorCode.OUTPUT_UNWRITABLE
    assert "not yours" in caught.value.what
    assert store in caught.value.where


def test_two_masters_on_one_store_the_earlier_one_is_fenced_off(tmp_path: Path, store: str) -> None:
    begun = threading.Event()
    taken = threading.Event()

    def at_minibatch(worker: FakeWorker, minibatch: int) -> None:
        begun.set()
        taken.wait(DEADLINE_S)

    spec = spec_of(tmp_path, store)
    with RunningJob(
        spec, tmp_path / "here", WorkerBehavior(RECORDS, at_minibatch=at_minibatch)
    ) as first:
        assert begun.wait(DEADLINE_S)
        again = spec_of(tmp_path, store)
        again.output += "-again"
        with RunningJob(again, tmp_path / "there", WorkerBehavior(RECORDS)) as second:
            taken.set()
            assert first.wait() == 1
            assert second.wait() == 0
            check_exact(again, second.app.report.status())
        status = first.app.report.status()
    assert status.error.code == ErrorCode.STALE_INCARNATION
    assert "fenced off" in status.error.what
