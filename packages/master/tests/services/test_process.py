"""The master as a process: how it is started, how it ends, and that nothing outlives it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fakes.jobs import DEADLINE_S, training_spec
from master_process import RECORDS, Master, alive, failed_later, until

from edl_proto.transport import channels
from edl_proto.v1 import job_pb2, job_pb2_grpc


@pytest.fixture
def master(tmp_path: Path, forking_python: str) -> Iterator[Master]:
    master = Master(tmp_path, forking_python)
    yield master
    master.close()


@pytest.fixture
def held(master: Master, tmp_path: Path) -> job_pb2.JobSpec:
    """A job that is not over, and whose workers count as healthy, for as long as a test likes."""
    spec = training_spec(tmp_path)
    spec.failures.stall_timeout_s = 10 * DEADLINE_S
    spec.snapshot_interval_s = 1
    master.hold(2)
    return spec


def has_worked(master: Master) -> bool:
    """Whether there is some work that could be lost."""
    return int(master.status().get("progress", {}).get("steps", 0)) > 3


def test_a_job_of_processes_trains_exactly_and_leaves_nothing_behind(
    master: Master, tmp_path: Path
) -> None:
    spec = training_spec(tmp_path)
    master.start(spec, EDL_TEST_DELAY_S="0.02")
    records = until(lambda: len(found := master.instance_records()) == 2 and found, "two workers")
    pid = master.pid
    assert master.wait() == 0, master.log()
    assert np.array_equal(np.load(tmp_path / "model" / "weights.npy"), np.full(RECORDS, 2.0))
    status = master.status()
    assert status["state"] == "SUCCEEDED"
    assert alive(records) == []
    assert master.instance_records() == []
    logs = master.job_dir / "logs"
    assert "worker 1 on " in (logs / "worker-1.log").read_text()
    assert "defect" not in master.log()
    facts = json.loads((master.job_dir / "master.json").read_text())
    assert facts["pid"] == pid
    assert facts["address"].startswith("127.0.0.1:")


def test_a_worker_killed_from_outside_is_replaced_and_nothing_is_lost(
    master: Master, held: job_pb2.JobSpec, tmp_path: Path
) -> None:
    master.start(held)
    until(lambda: has_worked(master), "some work")
    victim = master.instance_records()[0]
    os.kill(victim["pid"], signal.SIGKILL)
    until(lambda: master.status().get("preemptions") == 1, "the preemption to be seen")
    master.release()
    assert master.wait() == 0, master.log()
    assert np.array_equal(np.load(tmp_path / "model" / "weights.npy"), np.full(RECORDS, 2.0))
    status = master.status()
    assert (status["preemptions"], status["worker_failures"]) == (1, 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_suspends_a_job_and_the_next_master_goes_on(
    master: Master, held: job_pb2.JobSpec, tmp_path: Path, number: signal.Signals
) -> None:
    """Signals come from a reboot or a supervisor; only a command stops a job for good."""
    master.start(held)
    until(lambda: has_worked(master), "some work")
    until(lambda: list((master.job_dir / "snapshots").glob("counting-*")), "a snapshot")
    records = master.instance_records()
    for record in records:
        os.kill(record["pid"], signal.SIGSTOP)  # these small workers do not wait for a master
    assert master.process is not None
    master.process.send_signal(number)
    assert master.wait() == -number
    assert sorted(alive(records)) == sorted(record["pid"] for record in records)
    master.release()
    for record in records:
        os.kill(record["pid"], signal.SIGCONT)
    assert master.status()["state"] == "RUNNING"
    assert not master.status().get("error", {}).get("what")
    master.start(held)
    assert master.wait() == 0, master.log()
    assert np.array_equal(np.load(tmp_path / "model" / "weights.npy"), np.full(RECORDS, 2.0))
    events = (master.job_dir / "events.jsonl").read_text()
    assert "MasterSuspended" in events
    assert "CheckpointRestored" in events


def stub(master: Master) -> job_pb2_grpc.JobStub:
    """The Job service of the master that runs."""
    facts = json.loads((master.job_dir / "master.json").read_text())
    return job_pb2_grpc.JobStub(channels.connect(facts["address"]))


def test_an_acknowledged_stop_outlives_the_master(
    master: Master, held: job_pb2.JobSpec, tmp_path: Path
) -> None:
    """Killed right after its answer: the next master stops the job."""
    held.worker_grace_s = 10 * DEADLINE_S  # the first one waits for its workers
    master.start(held)
    until(lambda: has_worked(master), "some work")
    stub(master).Stop(job_pb2.StopRequest(reason="enough"), timeout=DEADLINE_S)
    master.kill()
    assert master.status()["state"] != "CANCELLED"
    master.release()
    master.start(held)
    assert master.wait() == 1, master.log()
    status = master.status()
    assert status["state"] == "CANCELLED"
    assert status["error"]["code"] == "STOPPED"
    assert "enough" in status["error"]["what"] + status["error"]["where"]
    assert master.instance_records() == []
    assert not (tmp_path / "model").exists()


def test_an_acknowledged_number_of_workers_outlives_the_master(
    master: Master, held: job_pb2.JobSpec
) -> None:
    master.start(held)
    until(lambda: has_worked(master), "some work")
    one = job_pb2.WorkersSpec(min=1, max=1)
    stub(master).Scale(job_pb2.ScaleRequest(workers=one), timeout=DEADLINE_S)
    master.kill()
    shutil.rmtree(master.job_dir / "snapshots")  # as if it had died before the next snapshot
    master.start(held)
    until(
        lambda: (
            master.status().get("workers_wanted", {}).get("max") == 1
            and len(alive(master.instance_records())) == 1
        ),
        "one worker",
    )
    master.release()
    assert master.wait() == 0, master.log()


def test_a_master_of_a_job_that_is_over_does_nothing(master: Master, tmp_path: Path) -> None:
    """It may have been started while its predecessor ended the job."""
    spec = training_spec(tmp_path)
    master.start(spec, EDL_TEST_DELAY_S="0.02")
    assert master.wait() == 0, master.log()
    before = (master.job_dir / "status.json").read_bytes()
    again = subprocess.run(
        [master.interpreter, "-m", "edl_master", "--job-dir", str(master.job_dir)],
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert again.returncode == 0, again.stderr
    assert (master.job_dir / "status.json").read_bytes() == before
    assert master.instance_records() == []
    # Killed after it had decided: nothing was removed yet, and no status says how the job ended.
    (master.job_dir / "status.json").rename(master.job_dir / "end.json")
    left = [
        master.job_dir / "snapshots" / "counting-00000001",
        tmp_path / ".model.edl-counting.0123abcd-7.tmp",
        master.job_dir / ".status.json.0123abcd.tmp",
        master.job_dir / ".parts-joined.0123abcd.tmp",
        master.job_dir / ".reserve",
    ]
    for place in left[:2]:
        place.mkdir()
        (place / "file").touch()
    for place in left[2:]:
        place.touch()
    master.start(spec)
    assert master.wait() == 0, master.log()
    assert master.status() == json.loads(before)
    assert not [place for place in left if place.exists()]
    assert not (master.job_dir / "end.json").exists()
    assert (tmp_path / "model" / "weights.npy").exists()


def test_the_next_master_finds_the_workers_of_one_that_was_killed(
    master: Master, held: job_pb2.JobSpec, tmp_path: Path
) -> None:
    """A master without a snapshot begins anew, and ends them first: no worker has two instances."""
    master.start(held)
    until(lambda: has_worked(master), "some work")
    orphans = master.instance_records()
    for record in orphans:
        os.kill(record["pid"], signal.SIGSTOP)  # they would leave by themselves
    master.kill()
    assert len(alive(orphans)) == 2
    shutil.rmtree(master.job_dir / "snapshots")
    master.start(held)
    old = {record["pid"] for record in orphans}
    until(
        lambda: any(record["pid"] not in old for record in master.instance_records()),
        "a new worker",
    )
    assert alive(orphans) == []
    master.release()
    assert master.wait() == 0, master.log()
    assert (master.status()["preemptions"], master.status()["worker_failures"]) == (0, 0)
    assert np.array_equal(np.load(tmp_path / "model" / "weights.npy"), np.full(RECORDS, 2.0))


def test_a_killed_master_s_successor_goes_on_from_its_snapshot(
    master: Master, held: job_pb2.JobSpec, tmp_path: Path
) -> None:
    """Snapshots are kept without being asked for, and what happened to workers is still known."""
    master.start(held)
    until(lambda: list((master.job_dir / "snapshots").glob("counting-*")), "a snapshot")
    os.kill(master.instance_records()[0]["pid"], signal.SIGKILL)
    until(lambda: master.status().get("preemptions") == 1, "the preemption to be seen")
    running = {"loading", "ready", "working"}
    until(lambda: {each["state"] for each in master.status()["workers"]} <= running, "two workers")
    workers, started_at = master.instance_records(), master.status()["started_at"]
    master.kill()
    for each in workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each["pid"], signal.SIGKILL)
    master.release()
    master.start(held)
    assert master.wait() == 0, master.log()
    status = master.status()
    assert (status["preemptions"], status["worker_failures"]) == (3, 0)
    assert status["started_at"] == started_at, "the job has not started anew"
    assert status["master_restarts"] == 1
    assert np.array_equal(np.load(tmp_path / "model" / "weights.npy"), np.full(RECORDS, 2.0))
    events = (master.job_dir / "events.jsonl").read_text()
    assert "CheckpointRestored" in events
    assert not list((master.job_dir / "snapshots").glob("counting-*")), "not needed any more"


@pytest.mark.parametrize("damage", ["torn", "missing part", "all torn"])
def test_a_damaged_snapshot_is_reported_and_the_one_before_is_used(
    master: Master, held: job_pb2.JobSpec, tmp_path: Path, damage: str
) -> None:
    master.start(held)
    snapshots = master.job_dir / "snapshots"
    kept = until(lambda: len(found := sorted(snapshots.glob("c*"))) == 2 and found, "two snapshots")
    master.kill()
    kept = sorted(snapshots.glob("counting-*"))
    for place in kept if damage == "all torn" else kept[-1:]:
        if damage == "missing part":
            next(place.glob("*.npy")).unlink()
        else:
            ledger = place / "ledger.json"
            ledger.write_bytes(ledger.read_bytes()[:-9])
    master.release()
    master.start(held)
    if damage == "all torn":
        error = failed_later(master)
        assert error["code"] == "CHECKPOINT_DAMAGED"
        assert str(snapshots) in error["where"]
        return
    assert master.wait() == 0, master.log()
    weights = np.load(tmp_path / "model" / "weights.npy")
    assert np.array_equal(weights, np.full(RECORDS, 2.0))
    events = (master.job_dir / "events.jsonl").read_text()
    assert "CheckpointDamaged" in events
    assert kept[-1].name in events
    assert f"Continues from checkpoint {kept[0].name}" in events
