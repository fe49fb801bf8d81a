"""What keeps a master from starting or going on, and how the job reports it."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.jobs import DEADLINE_S, training_spec
from master_process import Master, until, wait_for_failure

from edl_proto.v1 import job_pb2
from edl_runtime.local import job_directory
from edl_testing.requirements import do_without


@pytest.fixture
def master(tmp_path: Path, forking_python: str) -> Iterator[Master]:
    master = Master(tmp_path, forking_python)
    yield master
    master.close()


@pytest.mark.parametrize("field", ["port", "dashboard_port"])
def test_a_port_in_use_is_named(master: Master, tmp_path: Path, field: str) -> None:
    spec = training_spec(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        setattr(spec.serving, field, port)
        master.start(spec)
        error = wait_for_failure(master, "PORT_IN_USE")
    assert str(port) in error["what"]
    assert field.replace("_", "-") in error["remedy"]


def test_data_that_is_not_there_is_named(master: Master, tmp_path: Path) -> None:
    spec = training_spec(tmp_path)
    spec.data[:] = [str(tmp_path / "nowhere" / "*.recordio")]
    master.start(spec)
    assert "nowhere" in wait_for_failure(master, "DATA_NOT_FOUND")["what"]


def test_damaged_data_is_named(master: Master, tmp_path: Path) -> None:
    spec = training_spec(tmp_path)
    damaged = tmp_path / "data" / "part-1.recordio"
    damaged.write_bytes(damaged.read_bytes()[:-3])
    master.start(spec)
    error = wait_for_failure(master, "DATA_DAMAGED")
    assert "part-1.recordio" in error["what"]
    assert "offset" in error["what"]


def test_an_output_that_exists_is_named(master: Master, tmp_path: Path) -> None:
    spec = training_spec(tmp_path)
    (tmp_path / "model").mkdir()
    master.start(spec)
    assert str(tmp_path / "model") in wait_for_failure(master, "OUTPUT_EXISTS")["what"]


def test_a_spec_that_is_none_is_reported(master: Master, tmp_path: Path) -> None:
    master.start(job_pb2.JobSpec(name="counting"))
    wait_for_failure(master, "USAGE")


def test_two_masters_never_work_in_one_directory(master: Master, tmp_path: Path) -> None:
    master.start(training_spec(tmp_path), EDL_TEST_DELAY_S="0.1")
    until(master.instance_records, "a worker")
    second = subprocess.run(
        [master.interpreter, "-m", "edl_master", "--job-dir", str(master.job_dir)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert second.returncode == job_directory.DIRECTORY_TAKEN
    assert "another master" in second.stderr
    assert master.wait() == 0, master.log()
    assert master.status()["state"] == "SUCCEEDED"


@pytest.fixture(scope="module")
def mounts() -> None:
    """Make sure that this process can mount a small disk for itself alone."""
    if shutil.which("unshare") is None:
        reason = "there is no unshare"
    else:
        probe = ["unshare", "-rm", "mount", "-t", "tmpfs", "-o", "size=64k", "none", "/mnt"]
        done = subprocess.run(probe, capture_output=True, text=True, timeout=200, check=False)
        reason = done.stderr if done.returncode else ""
    if reason:
        do_without(f"no small disk can be mounted here: {reason.strip()}")


@pytest.mark.usefixtures("mounts")
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


@pytest.mark.usefixtures("mounts")
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
