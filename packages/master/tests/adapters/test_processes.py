"""Local processes as a platform: the promises of every platform, and those of this one."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance import platform_suite
from conformance.platform_suite import (
    LONG_S,
    ZERO,
    Behaviour,
    PlatformSuite,
    observe,
    until,
    wait_for_exit,
)

from edl_master.adapters.processes import LocalProcesses, limit_threads
from edl_master.core.events import InstanceExited, InstanceNotStarted
from edl_master.core.identifiers import InstanceId, WorkerId
from edl_master.core.platform import Platform
from edl_runtime.local import process_identity

INSTANCE = Path(platform_suite.__file__).with_name("instance.py")


def pid_of(instance: InstanceId) -> int:
    return int(instance.split(":")[1])


def command(behaviour: str) -> list[str]:
    if behaviour == Behaviour.MISSING:
        return ["/nowhere/python", str(INSTANCE)]
    return [sys.executable, "-S", "-E", str(INSTANCE), behaviour]


class LocalHarness:
    """Real processes in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.records = directory / "instances"
        self.logs = directory / "logs"
        self.vmstat = directory / "vmstat"
        self.vmstat.write_text("nr_free_pages 7\noom_kill 4\n")
        self.platforms: list[LocalProcesses] = []
        self.instances: set[int] = set()

    def platform(self, behaviour: str) -> LocalProcesses:
        environment = {**os.environ, "EDL_TEST": str(self.directory)}
        platform = LocalProcesses(
            lambda worker: command(behaviour),
            environment,
            self.logs,
            self.records,
            self.vmstat,
        )
        self.platforms.append(platform)
        return platform

    def successor(self, platform: Platform) -> Platform:
        # A platform that is closed without knowing of any process leaves all of them alive.
        assert isinstance(platform, LocalProcesses)
        with platform._changed:
            platform._processes.clear()
        platform.close(0)
        return self.platform(Behaviour.OBEDIENT)

    def is_up(self, instance: InstanceId) -> bool:
        self.instances.add(pid_of(instance))
        record = next(
            record
            for record in map(json.loads, map(Path.read_text, self.records.glob("*.json")))
            if record["instance"] == instance
        )
        log = (self.logs / f"worker-{record['worker']}.log").read_bytes()
        return b"up\n" in log[record["log_start"] :]

    def is_alive(self, instance: InstanceId) -> bool:
        return process_identity.is_running(pid_of(instance))

    def take_away(self, instance: InstanceId) -> None:
        os.kill(pid_of(instance), signal.SIGKILL)

    def ask_from_outside(self, instance: InstanceId) -> None:
        os.kill(pid_of(instance), signal.SIGTERM)

    def close(self) -> None:
        for platform in self.platforms:
            platform.close(0)
        for pid in self.instances:  # those of platforms that were made to forget them
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalHarness]:
    harness = LocalHarness(tmp_path)
    yield harness
    harness.close()


class TestLocalProcesses(PlatformSuite):
    """The promises of every platform."""

    @pytest.fixture
    def harness(self, local: LocalHarness) -> LocalHarness:
        return local


def test_an_instance_has_a_session_of_its_own_and_the_identity_by_which_workers_register(
    local: LocalHarness,
) -> None:
    platform = local.platform(Behaviour.OBEDIENT)
    instance = PlatformSuite.up(local, platform)
    pid = pid_of(instance)
    assert os.getsid(pid) == pid
    assert instance == f"{os.uname().nodename}:{pid}:{process_identity.start_time(pid)}"


def test_an_end_is_reported_on_a_disk_that_became_read_only(
    local: LocalHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    platform = local.platform(Behaviour.OBEDIENT)
    for _ in range(2):
        instance = PlatformSuite.up(local, platform)
        with monkeypatch.context() as disk:
            disk.setattr(Path, "unlink", refuse)
            local.take_away(instance)
            assert wait_for_exit(platform).preempted
        for record in local.records.iterdir():
            record.unlink()


def test_what_an_instance_has_started_ends_with_it(local: LocalHarness) -> None:
    platform = local.platform("parent")
    instance = PlatformSuite.up(local, platform)
    log = (local.logs / "worker-0.log").read_text()
    child = int(log.split("child ")[1].split()[0])
    assert process_identity.is_running(child)
    local.take_away(instance)
    assert wait_for_exit(platform).preempted
    until(lambda: not process_identity.is_running(child), "the instance's own child to be gone")


def test_what_an_adopted_instance_has_started_ends_with_it(local: LocalHarness) -> None:
    before = local.platform("parent")
    instance = PlatformSuite.up(local, before)
    child = int((local.logs / "worker-0.log").read_text().split("child ")[1].split()[0])
    platform = local.successor(before)
    platform.adopt()
    local.take_away(instance)
    wait_for_exit(platform)
    until(lambda: not process_identity.is_running(child), "the instance's own child to be gone")


def litter_of(local: LocalHarness) -> Path:
    log = (local.logs / "worker-0.log").read_text()
    return Path(log.split("litter ")[1].split("\n")[0])


def test_the_temporary_files_of_an_instance_that_is_killed_go_with_it(local: LocalHarness) -> None:
    platform = local.platform("littering")
    instance = PlatformSuite.up(local, platform)
    litter = litter_of(local)
    assert litter.is_dir()
    assert litter.is_relative_to(local.directory), "otherwise it is lost if all are killed at once"
    local.take_away(instance)
    wait_for_exit(platform)
    assert not litter.exists()
    assert not litter.parent.exists()


def test_a_master_that_is_started_again_clears_up_after_instances_that_are_gone(
    local: LocalHarness,
) -> None:
    before = local.platform("littering")
    instance = PlatformSuite.up(local, before)
    platform = local.successor(before)
    litter = litter_of(local)
    local.take_away(instance)
    os.waitpid(pid_of(instance), 0)
    local.instances.clear()
    assert litter.is_dir()
    assert platform.adopt() == ()
    assert not litter.parent.exists()


def test_a_record_with_a_number_that_another_process_has_now_touches_no_process(
    local: LocalHarness,
) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        platform = local.platform(Behaviour.OBEDIENT)
        record = local.records / "worker-0-0.json"
        started_at = process_identity.start_time(stranger.pid)
        assert started_at is not None
        facts = {
            "worker": 0,
            "attempt": 0,
            "pid": stranger.pid,
            "start_time": started_at - 1,
            "instance": "x",
            "log_start": 0,
        }
        record.write_text(json.dumps(facts))
        assert platform.adopt() == ()
        platform.close(0)
        assert stranger.poll() is None
        assert not record.exists()
    finally:
        stranger.kill()
        stranger.wait()


def test_a_torn_record_is_passed_over(local: LocalHarness) -> None:
    platform = local.platform(Behaviour.OBEDIENT)
    record = local.records / "worker-0-0.json"
    record.write_text('{"worker": 0, "att')
    assert platform.adopt() == ()
    assert not record.exists()


def test_records_are_there_as_long_as_their_instances(local: LocalHarness) -> None:
    platform = local.platform(Behaviour.OBEDIENT)
    instance = PlatformSuite.up(local, platform)
    (record,) = local.records.iterdir()
    assert json.loads(record.read_text())["instance"] == instance
    platform.kill(ZERO)
    wait_for_exit(platform)
    assert list(local.records.iterdir()) == []


def test_an_instance_that_cannot_be_recorded_is_not_left_running(local: LocalHarness) -> None:
    platform = local.platform(Behaviour.STUBBORN)
    local.records.rmdir()  # as if the disk had become unwritable
    platform.start(ZERO, 0)
    (seen,) = observe(platform, 1)
    assert isinstance(seen, InstanceNotStarted)
    mine = f"EDL_TEST={local.directory}".encode()
    assert not [path for path in Path("/proc").glob("[0-9]*/environ") if mine in _content(path)]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_instances_survive_a_master_that_is_killed_and_the_next_one_finds_them(
    local: LocalHarness,
) -> None:
    master = subprocess.Popen(
        [sys.executable, "-c", _MASTER, str(local.directory), str(INSTANCE)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert master.stdout is not None
    instance = InstanceId(master.stdout.readline().strip())
    until(lambda: local.is_up(instance), "the instance")
    master.kill()
    master.wait()
    master.stdout.close()
    assert local.is_alive(instance)
    platform = local.platform(Behaviour.OBEDIENT)
    (found,) = platform.adopt()
    assert (found.worker, found.attempt, found.instance) == (WorkerId(3), 2, instance)
    platform.stop(WorkerId(3), LONG_S)
    gone = wait_for_exit(platform)
    # Only its parent learns how a process ended.
    assert (gone.instance, gone.exit_code, gone.signal, gone.preempted) == (
        instance,
        None,
        None,
        False,
    )


_MASTER = """
import os, sys, time
from pathlib import Path
from edl_master.adapters.processes import LocalProcesses
directory = Path(sys.argv[1])
platform = LocalProcesses(
    lambda worker: [sys.executable, "-S", "-E", sys.argv[2], "obedient"],
    os.environ, directory / "logs", directory / "instances",
)
platform.start(3, 2)
print(platform.observe(60)[0].instance, flush=True)
time.sleep(600)
"""


def test_a_process_killed_for_lack_of_memory_was_not_preempted(local: LocalHarness) -> None:
    platform = local.platform(Behaviour.OBEDIENT)
    instance = PlatformSuite.up(local, platform)
    local.vmstat.write_text("nr_free_pages 7\noom_kill 5\n")
    local.take_away(instance)
    gone = wait_for_exit(platform)
    assert (gone.signal, gone.preempted) == (signal.SIGKILL, False)
    assert "out of memory" in gone.log_tail


def test_a_stopped_process_is_still_killed_after_its_grace(local: LocalHarness) -> None:
    platform = local.platform(Behaviour.OBEDIENT)
    instance = PlatformSuite.up(local, platform)
    os.kill(pid_of(instance), signal.SIGSTOP)
    platform.stop(ZERO, 0.2)
    gone = wait_for_exit(platform)
    assert (gone.signal, gone.preempted) == (signal.SIGKILL, False)


def test_all_instances_of_a_worker_append_to_one_log(local: LocalHarness) -> None:
    platform = local.platform(Behaviour.FINISHING)
    for attempt in range(2):
        platform.start(ZERO, attempt)
        assert isinstance(observe(platform, 2)[1], InstanceExited)
    lines = (local.logs / "worker-0.log").read_text().splitlines()
    assert [line for line in lines if not line.startswith("---")] == ["done", "done"]
    assert [line.rpartition(", ")[2] for line in lines if line.startswith("---")] == [
        "start 1",
        "start 2",
    ]


def test_an_exit_is_seen_without_polling(local: LocalHarness) -> None:
    platform = local.platform(Behaviour.OBEDIENT)
    instance = PlatformSuite.up(local, platform)
    before = time.thread_time()  # threads of other tests may still compute
    platform.observe(0.5)
    assert time.thread_time() - before < 0.25
    local.take_away(instance)
    assert platform.observe(LONG_S)


def test_workers_that_share_the_cores_get_a_share_of_the_threads() -> None:
    limited = limit_threads({"PATH": "/bin"}, instances=2, cores=8)
    settings = "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"
    assert limited == {"PATH": "/bin", **dict.fromkeys(settings, "4")}
    assert limit_threads({}, instances=16, cores=8)["OMP_NUM_THREADS"] == "1"


def test_threads_are_left_alone_for_one_worker_and_where_the_user_has_set_them() -> None:
    assert limit_threads({}, instances=1, cores=8) == {}
    own = {"TF_NUM_INTRAOP_THREADS": "3"}
    assert limit_threads(own, instances=4, cores=8) == own


def test_started_is_reported_before_exited_even_for_an_instance_that_ends_at_once(
    local: LocalHarness,
) -> None:
    platform = local.platform(Behaviour.FINISHING)
    for attempt in range(5):
        platform.start(ZERO, attempt)
    kinds: dict[InstanceId | None, list[str]] = {}
    for seen in observe(platform, 10):
        assert not isinstance(seen, InstanceNotStarted)
        kinds.setdefault(seen.instance, []).append(type(seen).__name__)
    assert list(kinds.values()) == [["InstanceStarted", "InstanceExited"]] * 5


def test_a_process_that_cannot_be_watched_does_not_run(
    local: LocalHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def refuse(pid: int) -> int:
        made.append(pid)
        raise OSError(errno.EMFILE, "Too many open files")

    platform = local.platform(Behaviour.OBEDIENT)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pidfd_open", refuse)
        platform.start(ZERO, 0)
    local.instances.update(made)
    (seen,) = platform.observe(LONG_S)
    assert isinstance(seen, InstanceNotStarted)
    assert "Too many open files" in seen.reason
    assert not process_identity.is_running(made[0])
    assert list((local.directory / "tmp").iterdir()) == []
