"""The supervisor as the parent of small masters: what it reports, restarts and ends."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edl.adapters.local import instances, supervisor
from edl.adapters.local.supervisor import GAVE_UP, Supervisor
from edl.core import supervision as core
from edl_proto.v1 import job_pb2
from edl_runtime.local import process_identity, supervision
from edl_runtime.local.job_status import read_status

FINISH = """printf '{"state": "SUCCEEDED"}' > $2/status.json\n"""


@pytest.fixture
def job_dir(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    (tmp_path / "instances").mkdir()
    (tmp_path / "spec.json").write_text("{}")
    return tmp_path


Begin = Callable[[str, str], Supervisor]


@pytest.fixture
def begin(job_dir: Path) -> Begin:
    """A supervisor whose masters run a script each: the first one, then all others."""

    def make(first: str, later: str = FINISH) -> Supervisor:
        script = job_dir / "master.sh"
        script.write_text(
            f'if [ -e "$2/born" ]; then\n{later}\nelse\ntouch "$2/born"\n{first}\nfi\n'
        )
        supervision.describe(job_dir, ["true"], ["sh", str(script)])
        return Supervisor(job_dir, ["sh", str(script)])

    return make


def report(job_dir: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((job_dir / "supervision.json").read_bytes())
    return found


def sleeping_worker(job_dir: Path) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    facts = {"pid": child.pid, "start_time": process_identity.start_time(child.pid)}
    (job_dir / "instances" / "worker-0-0.json").write_text(json.dumps(facts))
    return child


def test_a_master_that_ends_the_job_is_the_only_one(job_dir: Path, begin: Begin) -> None:
    assert begin(FINISH, "exit 9").run() == 0
    assert report(job_dir)["starts"] == 1


@pytest.mark.parametrize("damage", [b"", b'{"state": "SUCC', b"null", None])
def test_a_job_that_has_ended_stays_so_when_its_status_is_damaged(
    job_dir: Path, begin: Begin, damage: bytes | None
) -> None:
    assert begin(FINISH, "exit 9").run() == 0
    (job_dir / "status.json").unlink()
    if damage is not None:
        (job_dir / "status.json").write_bytes(damage)
    assert supervision.is_wanted(job_dir)
    assert not supervision.ensure(job_dir), "a client that looks at the job starts it again"
    assert read_status(job_dir).state == job_pb2.SUCCEEDED


def test_a_killed_master_is_restarted_and_its_exit_reported(job_dir: Path, begin: Begin) -> None:
    assert begin("kill -9 $$", FINISH).run() == 0
    found = report(job_dir)
    assert found["starts"] == 2
    assert "error" not in found


def test_a_master_that_a_signal_suspended_is_restarted(job_dir: Path, begin: Begin) -> None:
    assert begin("kill -TERM $$", FINISH).run() == 0
    assert report(job_dir)["starts"] == 2


def is_frozen(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except FileNotFoundError:
        return False  # it has ended


def test_a_master_frozen_before_it_does_anything_is_replaced(
    job_dir: Path, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds no lock, wrote no file, and its supervisor knows it as its child."""
    observe = Supervisor._observe

    def shorten_silence(self: Supervisor) -> core.Observation:
        """Shorten the time limit for frozen masters only: any other master may take its time."""
        frozen = self._child is not None and is_frozen(self._child.pid)
        monkeypatch.setattr(core, "SILENCE_S", 0.0 if frozen else 600.0)
        return observe(self)

    monkeypatch.setattr(Supervisor, "_observe", shorten_silence)
    monkeypatch.setattr(supervisor, "OBSERVE_EVERY_S", 0.1)
    monkeypatch.setattr(instances, "MASTER_GRACE_S", 0.2)
    assert begin("kill -STOP $$", FINISH).run() == 0
    found = report(job_dir)
    assert found["starts"] == 2
    assert found["last_exit"]["signal"] in (9, None), "killed; the second one ended by itself"


def test_a_master_that_fails_before_it_listens_is_given_up(job_dir: Path, begin: Begin) -> None:
    worker = sleeping_worker(job_dir)
    assert begin("echo no memory; exit 3", FINISH).run() == GAVE_UP
    found = report(job_dir)
    assert found["starts"] == 1
    assert found["last_exit"]["exit_code"] == 3
    assert found["error"]["code"] == "MASTER_LOST"
    assert "exit code 3 before it listened" in found["error"]["what"]
    assert not (job_dir / "status.json").exists(), "only masters write it"
    assert supervision.is_over(job_dir)
    assert worker.wait(200) < 0


def test_a_command_that_does_not_exist_is_named(job_dir: Path, begin: Begin) -> None:
    begin(FINISH, FINISH)
    assert Supervisor(job_dir, ["/nowhere/python", "-m", "edl_master"]).run() == GAVE_UP
    error = report(job_dir)["error"]
    assert error["where"] == "/nowhere/python -m edl_master"
    assert "edl doctor" in error["remedy"]


def test_workers_of_a_master_that_failed_at_its_start_are_ended(
    job_dir: Path, begin: Begin
) -> None:
    """After CHECKPOINT_DAMAGED, for example, the next master never learns of them."""
    worker = sleeping_worker(job_dir)
    failed = """printf '{"state": "FAILED"}' > $2/status.json; exit 1"""
    assert begin("kill -9 $$", failed).run() == 0
    assert worker.wait(200) < 0
    assert report(job_dir)["starts"] == 2


def test_the_master_of_a_killed_supervisor_is_observed_and_not_doubled(
    job_dir: Path, begin: Begin
) -> None:
    (job_dir / "born").touch()
    held = os.open(job_dir, os.O_RDONLY | os.O_CLOEXEC)
    fcntl.flock(held, fcntl.LOCK_EX)
    supervising = threading.Thread(target=begin("exit 9", FINISH).run)
    supervising.start()
    time.sleep(1.0)
    assert not (job_dir / "supervision.json").exists(), "no master was started beside it"
    os.close(held)
    supervising.join(200)
    assert report(job_dir)["starts"] == 1


def test_a_supervisor_ends_when_the_job_is_not_wanted_any_more(job_dir: Path, begin: Begin) -> None:
    supervising = threading.Thread(target=begin("sleep 5", FINISH).run)
    supervising.start()
    deadline = time.monotonic() + 200
    while not (job_dir / "born").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    supervision.release(job_dir)
    supervising.join(200)
    assert not supervising.is_alive()
