"""The master as a process: how it is started, how it ends, and that nothing outlives it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import instance
from fakes.jobs import DEADLINE_S, training_spec
from google.protobuf import json_format

from edl_proto.local import job_directory, process_identity
from edl_proto.transport import channels
from edl_proto.v1 import job_pb2, job_pb2_grpc

RECORDS = 106


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.02)
    return found


class Master:
    """A master process and its job's directory."""

    def __init__(self, tmp_path: Path) -> None:
        self.job_dir = tmp_path / "home" / "jobs" / "counting"
        (self.job_dir / "logs").mkdir(parents=True)
        self.python = tmp_path / "python"
        self.python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{instance.__file__}" "$@"\n')
        self.python.chmod(0o755)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, spec: job_pb2.JobSpec, *prefix: str, **environ: str) -> None:
        (self.job_dir / "spec.json").write_text(json_format.MessageToJson(spec))
        with (self.job_dir / "logs" / "master.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*prefix, sys.executable, "-m", "edl_master", "--job-dir", str(self.job_dir)],
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={
                    **os.environ,
                    "EDL_PYTHON": str(self.python),
                    "EDL_TEST_WEIGHTS": str(RECORDS),
                    **environ,
                },
            )

    def wait(self) -> int:
        assert self.process is not None
        return self.process.wait(DEADLINE_S)

    def status(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.job_dir / "status.json").read_text())
        except FileNotFoundError:
            return {}
        return found

    def instance_records(self) -> list[dict[str, Any]]:
        found = []
        for path in (self.job_dir / "instances").glob("*.json"):
            with contextlib.suppress(OSError):
                found.append(json.loads(path.read_text()))
        return found

    def log(self) -> str:
        return (self.job_dir / "logs" / "master.log").read_text()

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for record in self.instance_records():
            if fd := process_identity.Process(record["pid"], record["start_time"]).open():
                process_identity.send(fd, signal.SIGKILL)
                os.close(fd)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Master]:
    master = Master(tmp_path)
    yield master
    master.close()


def alive(records: list[dict[str, Any]]) -> list[int]:
    return [record["pid"] for record in records if process_identity.is_running(record["pid"])]


def test_a_job_of_processes_trains_exactly_and_leaves_nothing_behind(
    master: Master, tmp_path: Path
) -> None:
    spec = training_spec(tmp_path)
    master.start(spec, EDL_TEST_DELAY_S="0.02")
    records = until(lambda: len(found := master.instance_records()) == 2 and found, "two workers")
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
    assert master.process is not None
    assert facts["pid"] == master.process.pid
    assert facts["address"].startswith("127.0.0.1:")


def test_a_worker_killed_from_outside_is_replaced_and_nothing_is_lost(
    master: Master, tmp_path: Path
) -> None:
    spec = training_spec(tmp_path)
    master.start(spec, EDL_TEST_DELAY_S="0.1")
    until(lambda: int(master.status().get("progress", {}).get("steps", 0)) > 3, "some work")
    victim = master.instance_records()[0]
    os.kill(victim["pid"], signal.SIGKILL)
    until(lambda: master.status().get("preemptions") == 1, "the preemption to be seen")
    assert master.wait() == 0, master.log()
    assert np.array_equal(np.load(tmp_path / "model" / "weights.npy"), np.full(RECORDS, 2.0))
    status = master.status()
    assert (status["preemptions"], status["worker_failures"]) == (1, 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_suspends_a_job_and_the_next_master_goes_on(
    master: Master, tmp_path: Path, number: signal.Signals
) -> None:
    """Signals come from a reboot or a supervisor; only a command stops a job for good."""
    spec = training_spec(tmp_path)
    master.start(spec, EDL_TEST_DELAY_S="0.2")
    until(lambda: int(master.status().get("progress", {}).get("steps", 0)) > 3, "some work")
    until(lambda: list((master.job_dir / "snapshots").glob("counting-*")), "a snapshot")
    records = master.instance_records()
    for record in records:
        os.kill(record["pid"], signal.SIGSTOP)  # these small workers do not wait for a master
    assert master.process is not None
    master.process.send_signal(number)
    assert master.wait() == -number
    assert sorted(alive(records)) == sorted(record["pid"] for record in records)
    for record in records:
        os.kill(record["pid"], signal.SIGCONT)
    assert master.status()["state"] == "RUNNING"
    assert not master.status().get("error", {}).get("what")
    master.start(spec, EDL_TEST_DELAY_S="0.02")
    assert master.wait() == 0, master.log()
    assert np.array_equal(np.load(tmp_path / "model" / "weights.npy"), np.full(RECORDS, 2.0))
    events = (master.job_dir / "events.jsonl").read_text()
    assert "MasterSuspended" in events
    assert "CheckpointRestored" in events


def stub(master: Master) -> job_pb2_grpc.JobStub:
    """The Job service of the master that runs."""
    facts = json.loads((master.job_dir / "master.json").read_text())
    return job_pb2_grpc.JobStub(channels.connect(facts["address"]))


def test_an_acknowledged_stop_outlives_the_master(master: Master, tmp_path: Path) -> None:
    """Killed right after its answer: the next master stops the job."""
    spec = training_spec(tmp_path)
    master.start(spec, EDL_TEST_DELAY_S="0.2")
    until(lambda: int(master.status().get("progress", {}).get("steps", 0)) > 1, "some work")
    assert master.process is not None
    stub(master).Stop(job_pb2.StopRequest(reason="enough"), timeout=DEADLINE_S)
    master.process.kill()
    master.wait()
    assert master.status()["state"] != "CANCELLED"
    master.start(spec, EDL_TEST_DELAY_S="0.2")
    assert master.wait() == 1, master.log()
    status = master.status()
    assert status["state"] == "CANCELLED"
    assert status["error"]["code"] == "STOPPED"
    assert "enough" in status["error"]["what"] + status["error"]["where"]
    assert master.instance_records() == []
    assert not (tmp_path / "model").exists()


def test_an_acknowledged_number_of_workers_outlives_the_master(
    master: Master, tmp_path: Path
) -> None:
    spec = training_spec(tmp_path)
    master.start(spec, EDL_TEST_DELAY_S="0.2")
    until(lambda: int(master.status().get("progress", {}).get("steps", 0)) > 1, "some work")
    assert master.process is not None
    one = job_pb2.WorkersSpec(min=1, max=1)
    stub(master).Scale(job_pb2.ScaleRequest(workers=one), timeout=DEADLINE_S)
    master.process.kill()
    master.wait()
    shutil.rmtree(master.job_dir / "snapshots")  # as if it had died before the next snapshot
    master.start(spec, EDL_TEST_DELAY_S="0.1")
    until(
        lambda: (
            master.status().get("workers_wanted", {}).get("max") == 1
            and len(alive(master.instance_records())) == 1
        ),
        "one worker",
    )
    assert master.wait() == 0, master.log()


def test_a_master_of_a_job_that_is_over_does_nothing(master: Master, tmp_path: Path) -> None:
    """It may have been started while its predecessor ended the job."""
    spec = training_spec(tmp_path)
    master.start(spec, EDL_TEST_DELAY_S="0.02")
    assert master.wait() == 0, master.log()
    before = (master.job_dir / "status.json").read_bytes()
    again = subprocess.run(
        [sys.executable, "-m", "edl_master", "--job-dir", str(master.job_dir)],
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
    ]
    for place in left[:2]:
        place.mkdir()
        (place / "file").touch()
    left[2].touch()
    master.start(spec)
    assert master.wait() == 0, master.log()
    assert master.status() == json.loads(before)
    assert not [place for place in left if place.exists()]
    assert not (master.job_dir / "end.json").exists()
    assert (tmp_path / "model" / "weights.npy").exists()


def test_the_next_master_finds_the_workers_of_one_that_was_killed(
    master: Master, tmp_path: Path
) -> None:
    """Without a snapshot it begins anew, and ends them first: no two instances of one worker."""
    spec = training_spec(tmp_path)
    master.start(spec, EDL_TEST_DELAY_S="0.2")
    until(lambda: int(master.status().get("progress", {}).get("steps", 0)) > 1, "some work")
    assert master.process is not None
    orphans = master.instance_records()
    for record in orphans:
        os.kill(record["pid"], signal.SIGSTOP)  # they would leave by themselves
    master.process.kill()
    master.wait()
    assert len(alive(orphans)) == 2
    shutil.rmtree(master.job_dir / "snapshots")
    master.start(spec, EDL_TEST_DELAY_S="0.02")
    old = {record["pid"] for record in orphans}
    until(
        lambda: any(record["pid"] not in old for record in master.instance_records()),
        "a new worker",
    )
    assert alive(orphans) == []
    assert master.wait() == 0, master.log()
    assert (master.status()["preemptions"], master.status()["worker_failures"]) == (0, 0)
    assert np.array_equal(np.load(tmp_path / "model" / "weights.npy"), np.full(RECORDS, 2.0))


def failed(master: Master, code: str) -> dict[str, Any]:
    """The error of a job that could not be started."""
    assert master.wait() == 1
    status = master.status()
    assert status["state"] == "FAILED"
    error: dict[str, Any] = status["error"]
    assert error["code"] == code, error
    assert error["what"]
    assert error["where"]
    assert error["remedy"]
    assert not (master.job_dir / "master.json").exists()
    assert master.instance_records() == []
    events = (master.job_dir / "events.jsonl").read_text().splitlines()
    assert json.loads(events[-1])["kind"] == "JobFailed"
    return error


def test_a_killed_master_s_successor_goes_on_from_its_snapshot(
    master: Master, tmp_path: Path
) -> None:
    """Snapshots are kept without being asked for, and what happened to workers is still known."""
    spec = training_spec(tmp_path)
    master.start(spec, EDL_TEST_DELAY_S="0.2")
    until(lambda: list((master.job_dir / "snapshots").glob("counting-*")), "a snapshot")
    os.kill(master.instance_records()[0]["pid"], signal.SIGKILL)
    until(lambda: master.status().get("preemptions") == 1, "the preemption to be seen")
    running = {"loading", "ready", "working"}
    until(lambda: {each["state"] for each in master.status()["workers"]} <= running, "two workers")
    workers, started_at = master.instance_records(), master.status()["started_at"]
    assert master.process is not None
    master.process.kill()
    master.wait()
    for each in workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each["pid"], signal.SIGKILL)
    master.start(spec, EDL_TEST_DELAY_S="0.2")
    assert master.wait() == 0, master.log()
    status = master.status()
    assert (status["preemptions"], status["worker_failures"]) == (3, 0)
    assert status["started_at"] == started_at, "the job has not started anew"
    assert np.array_equal(np.load(tmp_path / "model" / "weights.npy"), np.full(RECORDS, 2.0))
    events = (master.job_dir / "events.jsonl").read_text()
    assert "CheckpointRestored" in events
    assert not list((master.job_dir / "snapshots").glob("counting-*")), "not needed any more"


@pytest.mark.parametrize("damage", ["torn", "missing part", "all torn"])
def test_a_damaged_snapshot_is_reported_and_the_one_before_is_used(
    master: Master, tmp_path: Path, damage: str
) -> None:
    spec = training_spec(tmp_path)
    spec.training.num_epochs = 6
    master.start(spec, EDL_TEST_DELAY_S="0.15")
    snapshots = master.job_dir / "snapshots"
    kept = until(lambda: len(found := sorted(snapshots.glob("c*"))) == 2 and found, "two snapshots")
    assert master.process is not None
    master.process.kill()
    master.wait()
    kept = sorted(snapshots.glob("counting-*"))
    for place in kept if damage == "all torn" else kept[-1:]:
        if damage == "missing part":
            next(place.glob("*.npy")).unlink()
        else:
            ledger = place / "ledger.json"
            ledger.write_bytes(ledger.read_bytes()[:-9])
    master.start(spec, EDL_TEST_DELAY_S="0.02")
    if damage == "all torn":
        error = failed_later(master)
        assert error["code"] == "CHECKPOINT_DAMAGED"
        assert str(snapshots) in error["where"]
        return
    assert master.wait() == 0, master.log()
    weights = np.load(tmp_path / "model" / "weights.npy")
    assert np.array_equal(weights, np.full(RECORDS, 6.0))
    events = (master.job_dir / "events.jsonl").read_text()
    assert "CheckpointDamaged" in events
    assert kept[-1].name in events
    assert f"Continues from checkpoint {kept[0].name}" in events


def failed_later(master: Master) -> dict[str, Any]:
    """The error of a job whose next master could not be started."""
    assert master.wait() == 1
    status = master.status()
    assert status["state"] == "FAILED"
    error: dict[str, Any] = status["error"]
    return error


@pytest.mark.parametrize("field", ["port", "dashboard_port"])
def test_a_port_in_use_is_named(master: Master, tmp_path: Path, field: str) -> None:
    spec = training_spec(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        setattr(spec.serving, field, port)
        master.start(spec)
        error = failed(master, "PORT_IN_USE")
    assert str(port) in error["what"]
    assert field.replace("_", "-") in error["remedy"]


def test_data_that_is_not_there_is_named(master: Master, tmp_path: Path) -> None:
    spec = training_spec(tmp_path)
    spec.data[:] = [str(tmp_path / "nowhere" / "*.recordio")]
    master.start(spec)
    assert "nowhere" in failed(master, "DATA_NOT_FOUND")["what"]


def test_damaged_data_is_named(master: Master, tmp_path: Path) -> None:
    spec = training_spec(tmp_path)
    damaged = tmp_path / "data" / "part-1.recordio"
    damaged.write_bytes(damaged.read_bytes()[:-3])
    master.start(spec)
    error = failed(master, "DATA_DAMAGED")
    assert "part-1.recordio" in error["what"]
    assert "offset" in error["what"]


def test_an_output_that_exists_is_named(master: Master, tmp_path: Path) -> None:
    spec = training_spec(tmp_path)
    (tmp_path / "model").mkdir()
    master.start(spec)
    assert str(tmp_path / "model") in failed(master, "OUTPUT_EXISTS")["what"]


def test_a_spec_that_is_none_is_reported(master: Master, tmp_path: Path) -> None:
    master.start(job_pb2.JobSpec(name="counting"))
    failed(master, "USAGE")


def test_two_masters_never_work_in_one_directory(master: Master, tmp_path: Path) -> None:
    master.start(training_spec(tmp_path), EDL_TEST_DELAY_S="0.1")
    until(master.instance_records, "a worker")
    second = subprocess.run(
        [sys.executable, "-m", "edl_master", "--job-dir", str(master.job_dir)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert second.returncode == job_directory.DIRECTORY_TAKEN
    assert "another master" in second.stderr
    assert master.wait() == 0, master.log()
    assert master.status()["state"] == "SUCCEEDED"


def can_mount() -> bool:
    """Whether this process may mount a small disk for itself alone."""
    if shutil.which("unshare") is None:
        return False
    probe = ["unshare", "-rm", "mount", "-t", "tmpfs", "-o", "size=64k", "none", "/mnt"]
    return subprocess.run(probe, capture_output=True, timeout=200, check=False).returncode == 0


@pytest.mark.skipif(not can_mount(), reason="no small disk can be mounted here")
@pytest.mark.parametrize("place", ["checkpoints", "tensorboard", "home/jobs/counting/snapshots"])
def test_a_full_disk_fails_the_job_and_says_so(master: Master, tmp_path: Path, place: str) -> None:
    """The job trains on; what cannot be kept on a full disk is not passed over in silence."""
    disk = tmp_path / place
    disk.mkdir(parents=True, exist_ok=True)
    spec = training_spec(tmp_path)
    spec.training.checkpoint_dir = str(tmp_path / "checkpoints")
    spec.training.checkpoint_steps = 4
    spec.tensorboard_dir = str(tmp_path / "tensorboard")
    mount = (
        f'mount -t tmpfs -o size=16k none "{disk}" && '
        f'head -c 15k /dev/zero > "{disk}/filler"; shift; exec "$@"'
    )
    master.start(spec, "unshare", "-rm", "sh", "-c", mount, "sh", "--", EDL_TEST_DELAY_S="0.02")
    assert master.wait() == 1
    status = master.status()
    assert status["state"] == "FAILED"
    assert status["error"]["code"] == "DISK_FULL", status["error"]
    assert place in status["error"]["what"]


@pytest.mark.skipif(not can_mount(), reason="no small disk can be mounted here")
def test_a_full_disk_under_the_job_itself_is_still_reported_in_its_status(
    master: Master, tmp_path: Path
) -> None:
    spec = training_spec(tmp_path)
    spec.training.num_epochs = 1000
    disk = master.job_dir.parent
    copy = tmp_path / "seen"
    # The disk is gone with the mount namespace, so what it holds at the end is copied out.
    script = (
        f'cp -r "{disk}" "{tmp_path}/saved" && mount -t tmpfs -o size=1200k none "{disk}" && '
        f'cp -r "{tmp_path}/saved/counting" "{disk}/" && shift && '
        f'(while [ ! -e "{disk}/counting/master.json" ]; do sleep 0.1; done; '
        f'head -c 2m /dev/zero > "{disk}/filler") & shift; "$@"; code=$?; '
        f'cp -r "{disk}/counting" "{copy}"; exit $code'
    )
    master.start(spec, "unshare", "-rm", "sh", "-c", script, "sh", "--", EDL_TEST_DELAY_S="0.05")
    assert master.wait() == 1
    status = json.loads((copy / "status.json").read_text())
    assert status["state"] == "FAILED"
    assert status["error"]["code"] == "DISK_FULL"
    events = [json.loads(line) for line in (copy / "events.jsonl").read_text().splitlines()]
    assert [int(event["number"]) for event in events] == list(range(1, len(events) + 1))
    assert "JobFailed" in [event["kind"] for event in events]
