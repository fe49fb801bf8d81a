"""Who starts, and who kills, the supervisor of a job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edl_runtime.local import process_environment, supervision
from edl_runtime.local.supervision import (
    FROZEN_S,
    SupervisorAction,
    SupervisorWatch,
    supervisor_action,
)

HOLD = """
import sys, time
from pathlib import Path
from edl_runtime.local import process_environment, supervision
held = supervision.hold(Path(sys.argv[1]))
print("held" if held else "taken", flush=True)
time.sleep(600)
"""


@pytest.fixture
def job_dir(tmp_path: Path) -> Path:
    """A job whose supervisor writes a letter to the file ``starts``, and ends."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "spec.json").write_text("{}")
    script = f"printf x >> {tmp_path}/starts"
    supervision.describe(tmp_path, ["sh", "-c", script], ["true"])
    return tmp_path


@pytest.fixture
def supervisor(job_dir: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the supervisor's lock and does nothing."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(job_dir)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    yield child
    child.kill()
    child.wait()
    child.stdout.close()


def starts(job_dir: Path, expected: int) -> None:
    """Wait until so many supervisors have been started."""
    deadline = time.monotonic() + 200
    path = job_dir / "starts"
    while not path.exists() or len(path.read_text()) < expected:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert len(path.read_text()) == expected


@pytest.mark.parametrize(
    ("wanted", "over", "held", "silent_s", "expected"),
    [
        (True, False, False, 0.0, SupervisorAction.START),
        (True, False, True, 0.0, SupervisorAction.NOTHING),
        (True, False, True, FROZEN_S + 1, SupervisorAction.KILL),
        (False, False, False, 0.0, SupervisorAction.NOTHING),
        (True, True, False, 0.0, SupervisorAction.NOTHING),
        (True, True, True, FROZEN_S + 1, SupervisorAction.NOTHING),
    ],
)
def test_what_a_supervisor_needs(
    wanted: bool, over: bool, held: bool, silent_s: float, expected: SupervisorAction
) -> None:
    found = supervisor_action(is_wanted=wanted, is_over=over, is_held=held, silent_s=silent_s)
    assert found is expected


def test_a_missing_supervisor_is_started_once(job_dir: Path) -> None:
    assert supervision.ensure(job_dir)
    starts(job_dir, 1)


def test_a_supervisor_that_has_not_locked_yet_is_not_started_again(job_dir: Path) -> None:
    supervision.describe(job_dir, ["sleep", "600", "#"], ["true"])
    slow = ["sh", "-c", f"printf x >> {job_dir}/starts; sleep 5"]
    supervision.describe(job_dir, slow, ["true"])
    assert [supervision.ensure(job_dir) for _ in range(5)] == [True, *[False] * 4]
    starts(job_dir, 1)


def test_a_job_that_is_over_or_released_gets_no_supervisor(job_dir: Path) -> None:
    (job_dir / "status.json").write_text('{"state": "FAILED"}')
    assert not supervision.ensure(job_dir)
    (job_dir / "status.json").write_text('{"state": "RUNNING"}')
    supervision.write_report(job_dir, {"error": {"code": "MASTER_LOST"}})
    assert not supervision.ensure(job_dir)
    supervision.write_report(job_dir, {"starts": 1})
    supervision.release(job_dir)
    assert not supervision.ensure(job_dir)
    assert not (job_dir / "starts").exists()


def test_a_release_holds_until_the_job_is_described_again(tmp_path: Path) -> None:
    supervision.release(tmp_path)
    assert not supervision.is_released(tmp_path), "something else restarts this job"
    supervision.describe(tmp_path, ["supervisor"], ["master"])
    assert not supervision.is_released(tmp_path)
    supervision.release(tmp_path)
    assert supervision.is_released(tmp_path)
    assert supervision.commands(tmp_path) is None
    supervision.describe(tmp_path, ["supervisor"], ["master"])
    assert not supervision.is_released(tmp_path)
    assert supervision.commands(tmp_path) == (["supervisor"], ["master"])


def test_a_held_lock_is_left_alone(job_dir: Path, supervisor: subprocess.Popen[str]) -> None:
    assert not supervision.ensure(job_dir)
    assert supervision.supervisor_pid(job_dir) == supervisor.pid
    supervisor.kill()
    supervisor.wait()
    assert supervision.supervisor_pid(job_dir) is None
    assert supervision.ensure(job_dir)


def test_later_workers_give_the_first_one_time(job_dir: Path) -> None:
    watch = SupervisorWatch(job_dir, delay_s=2.0)
    assert not watch.check(100.0)
    assert not watch.check(101.0)
    assert watch.check(102.0)


def test_a_frozen_supervisor_is_killed_and_replaced(
    job_dir: Path, supervisor: subprocess.Popen[str]
) -> None:
    os.kill(supervisor.pid, signal.SIGSTOP)
    watch = SupervisorWatch(job_dir)
    watch.check(100.0)
    watch.check(100.0 + FROZEN_S)
    assert supervisor.poll() is None
    watch.check(101.0 + FROZEN_S)
    assert supervisor.wait(200) == -signal.SIGKILL
    assert watch.check(102.0 + FROZEN_S)


def test_a_clock_that_was_set_kills_no_supervisor(
    job_dir: Path, supervisor: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour forward: the last heartbeat looks old until the next one comes."""
    monkeypatch.setattr(supervision, "_CONFIRM_S", 0.0)
    signs = iter((0, 1_000_000_000, 2_000_000_000))
    lock = job_dir / "supervisor.lock"
    os.utime(lock, ns=(0, 1))

    def sleeping(_: float) -> None:
        os.utime(lock, ns=(0, next(signs)))

    killed: list[int] = []
    monkeypatch.setattr(supervision.time, "sleep", sleeping)
    monkeypatch.setattr(supervision.os, "kill", lambda pid, _: killed.append(pid))
    supervision.ensure(job_dir)
    assert killed == []


def test_a_clock_that_was_set_back_hides_no_frozen_supervisor(
    job_dir: Path, supervisor: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "_CONFIRM_S", 0.0)
    os.kill(supervisor.pid, signal.SIGSTOP)
    in_ten_years = time.time() + 10 * 365 * 86400
    os.utime(job_dir / "supervisor.lock", (in_ten_years, in_ten_years))
    supervision.ensure(job_dir)
    assert supervisor.wait(200) == -signal.SIGKILL


def test_the_process_of_a_master_is_known_before_it_listens(job_dir: Path) -> None:
    assert supervision.master_process(job_dir) is None
    (job_dir / "master.json").write_text(json.dumps({"pid": 1, "start_time": 2}))
    assert supervision.master_process(job_dir) == (1, 2)
    (job_dir / "master-process.json").write_text(json.dumps({"pid": 3, "start_time": 4}))
    assert supervision.master_process(job_dir) == (3, 4)
    (job_dir / "container.json").write_text(json.dumps({"pid": 5, "start_time": 6}))
    assert supervision.master_process(job_dir) == (5, 6)


def test_a_supervisor_has_the_environment_of_the_submission(
    job_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", "/mine")
    monkeypatch.delenv("EDL_JOB_DIR", raising=False)
    changes = {"TMPDIR": str(job_dir / "tmp"), "EDL_JOB_DIR": str(job_dir)}
    for name, value in process_environment.change(os.environ, changes).items():
        monkeypatch.setenv(name, value)  # as in a worker
    found = job_dir / "environment"
    script = f'echo "$TMPDIR,$EDL_JOB_DIR," > {found}.new; mv {found}.new {found}'
    supervision.describe(job_dir, ["sh", "-c", script], ["true"])
    supervision.ensure(job_dir)
    deadline = time.monotonic() + 200
    while not found.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert found.read_text() == "/mine,,\n"
