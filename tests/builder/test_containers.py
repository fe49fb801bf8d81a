"""Containers as a platform: the promises of every platform, and those of this one."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from edl.adapters.local.worker_containers import WorkerContainers
from edl_master.adapters.containers import LocalContainers
from edl_master.core.events import InstanceNotStarted
from edl_master.core.identifiers import InstanceId, WorkerId
from edl_master.core.platform import Platform
from edl_proto.v1 import job_pb2
from edl_runtime.local import job_directory
from edl_runtime.local.container_calls import CallListener, CallRefusedError, call
from edl_runtime.local.containers import (
    LABEL_JOB,
    LABEL_JOB_DIR,
    LABEL_LOG_START,
    LABEL_ROLE,
    LABEL_WORKER,
)

from .docker_environment import DockerEnvironment

_MASTER_TESTS = Path(__file__).parents[2] / "packages" / "master" / "tests" / "conformance"


def _suite() -> Any:
    """The suite of all platforms; the builder's tests have a package of the same name."""
    spec = importlib.util.spec_from_file_location(
        "platform_suite", _MASTER_TESTS / "platform_suite.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["platform_suite"] = module
    spec.loader.exec_module(module)
    return module


suite = _suite()
Behaviour, ZERO, LONG_S = suite.Behaviour, suite.ZERO, suite.LONG_S


class Harness:
    """Real containers of one job, in a directory of its own, and what starts them."""

    def __init__(self, docker_env: DockerEnvironment, folder: Path) -> None:
        self.docker_env = docker_env
        self.folder = folder
        self.engine = docker_env.client()
        self.platforms: list[LocalContainers] = []
        self.opened = contextlib.ExitStack()

    def platform(
        self, behaviour: str, mounts: Mapping[str, bool] | None = None, *command: str
    ) -> LocalContainers:
        # What cannot be started in a container is an image that is not there.
        image = "none.invalid/nothing:1" if behaviour == Behaviour.MISSING else self.docker_env.bare
        places = {str(_MASTER_TESTS): False, **(mounts or {})}
        spec = job_pb2.JobSpec(
            name="suite",
            image=image,
            containers=job_pb2.ContainersSpec(
                engine=self.docker_env.engine,
                user="1234:1234",
                mounts=[
                    *(
                        job_pb2.Mount(path=p, writable=w, for_workers=True)
                        for p, w in places.items()
                    ),
                    job_pb2.Mount(path="/etc/ssl", for_workers=False),
                ],
            ),
        )
        words = command or ("python3", "-S", str(_MASTER_TESTS / "instance.py"), behaviour)
        (self.folder / job_directory.LOGS).mkdir(exist_ok=True)
        for number in range(8):
            log = self.folder / job_directory.LOGS / f"worker-{number}.log"
            log.touch()
            log.chmod(0o666)  # the user of these containers is not the one of these tests
        self.spec = spec
        handle = WorkerContainers(spec, self.folder).handle
        self.opened.enter_context(CallListener(self.folder, handle))
        found = LocalContainers(lambda worker: words, {"EDL_TEST": "1"}, "suite", self.folder)
        self.platforms.append(found)
        return found

    def successor(self, platform: Platform) -> Platform:
        # Without a word: it forgets its containers, and touches none of them again.
        assert isinstance(platform, LocalContainers)
        with platform._changed:
            platform._containers.clear()
        platform.close(0)
        return self.platform(Behaviour.OBEDIENT)

    def inspect(self, instance: InstanceId) -> Any:
        return self.engine.api.inspect_container(instance)

    def is_up(self, instance: InstanceId) -> bool:
        labels = self.inspect(instance)["Config"]["Labels"]
        log = self.folder / job_directory.LOGS / f"worker-{labels[LABEL_WORKER]}.log"
        return b"up\n" in log.read_bytes()[int(labels[LABEL_LOG_START]) :]

    def is_alive(self, instance: InstanceId) -> bool:
        with contextlib.suppress(Exception):
            return bool(self.inspect(instance)["State"]["Running"])
        return False

    def take_away(self, instance: InstanceId) -> None:
        self.engine.api.kill(instance)

    def ask_from_outside(self, instance: InstanceId) -> None:
        self.engine.api.kill(instance, "TERM")

    def left(self) -> list[Any]:
        mine = {"label": f"{LABEL_JOB_DIR}={self.folder}"}
        return list(self.engine.containers.list(all=True, filters=mine))

    def close(self) -> None:
        for platform in self.platforms:
            platform.close(0)
        for container in self.left():  # of platforms that were made to forget them
            with contextlib.suppress(Exception):
                container.remove(force=True)
        self.opened.close()
        self.engine.close()


@pytest.fixture
def containers(docker_env: DockerEnvironment, tmp_path: Path) -> Iterator[Harness]:
    tmp_path.chmod(0o755)
    found = Harness(docker_env, tmp_path)
    yield found
    found.close()


class TestLocalContainers(suite.PlatformSuite):
    """The promises of every platform."""

    @pytest.fixture
    def harness(self, containers: Harness) -> Harness:
        return containers


def test_nothing_of_an_instance_is_left_in_the_engine(containers: Harness) -> None:
    platform = containers.platform(Behaviour.FINISHING)
    platform.start(ZERO, 0)
    suite.observe(platform, 2)
    suite.until(lambda: not containers.left(), "the container to be removed")


def test_an_instance_is_found_by_its_labels_and_knows_its_own_name(containers: Harness) -> None:
    platform = containers.platform(Behaviour.OBEDIENT)
    instance = suite.PlatformSuite.up(containers, platform)
    (found,) = containers.left()
    assert found.name == instance
    assert found.labels[LABEL_JOB] == "suite"
    assert found.labels[LABEL_ROLE] == "worker"
    assert f"EDL_INSTANCE={instance}" in found.attrs["Config"]["Env"]


def test_an_instance_can_write_where_it_may_and_nowhere_else(
    containers: Harness, tmp_path: Path
) -> None:
    may, may_not = tmp_path / "may", tmp_path / "may-not"
    for folder in (may, may_not):
        folder.mkdir()
        folder.chmod(0o777)
    program = (
        "import os\n"
        f"for place in ('{may}', '{may_not}', '/etc', '/tmp', '{tmp_path}'):\n"
        "    try:\n"
        "        open(place + '/x', 'w').close(); print(place, 'written')\n"
        "    except OSError as error: print(place, type(error).__name__, error.strerror)\n"
        "print(os.getuid(), os.getgid(), open('/proc/self/status').read().split('CapEff:')[1]"
        ".split()[0])\n"
    )
    mounts = {str(may): True, str(may_not): False}
    platform = containers.platform("any", mounts, "python3", "-c", program)
    platform.start(ZERO, 0)
    _, gone = suite.observe(platform, 2)
    lines = gone.log_tail.splitlines()
    assert lines[0] == f"{may} written"
    assert lines[1] == f"{may_not} OSError Read-only file system"
    assert lines[2].startswith("/etc OSError Read-only")
    assert lines[3] == "/tmp written"
    assert "written" not in lines[4]
    assert lines[5] == "1234 1234 0000000000000000"
    assert (may / "x").stat().st_uid == 1234


def test_an_instance_whose_container_somebody_removes_was_preempted(containers: Harness) -> None:
    platform = containers.platform(Behaviour.STUBBORN)
    instance = suite.PlatformSuite.up(containers, platform)
    containers.engine.containers.get(instance).remove(force=True)
    gone = suite.exited(platform)
    assert (gone.instance, gone.exit_code, gone.preempted) == (instance, None, True)


def test_an_instance_stopped_while_it_is_being_made_ends(containers: Harness) -> None:
    platform = containers.platform(Behaviour.STUBBORN)
    platform.start(ZERO, 0)
    platform.stop(ZERO, 0.1)
    _, gone = suite.observe(platform, 2)
    assert not gone.preempted
    assert gone.signal is not None


def test_an_engine_that_is_not_there_is_a_reason(tmp_path: Path) -> None:
    spec = job_pb2.JobSpec(name="job", image="any")
    spec.containers.engine = f"unix://{tmp_path}/none.sock"
    platform = LocalContainers(lambda worker: ["true"], {}, "job", tmp_path)
    try:
        with CallListener(tmp_path, WorkerContainers(spec, tmp_path).handle):
            platform.start(WorkerId(1), 0)
            (seen,) = suite.observe(platform, 1)
        assert isinstance(seen, InstanceNotStarted)
        assert seen.worker == 1
        assert "engine" in seen.reason
    finally:
        platform.close(0)


def test_a_process_of_the_machine_that_was_replaced_serves_the_same_containers(
    containers: Harness,
) -> None:
    platform = containers.platform(Behaviour.OBEDIENT)
    instance = suite.PlatformSuite.up(containers, platform)
    containers.opened.close()
    containers.opened.enter_context(
        CallListener(containers.folder, WorkerContainers(containers.spec, containers.folder).handle)
    )
    platform.stop(ZERO, LONG_S)
    assert suite.exited(platform).instance == instance


# --- a hostile master --------------------------------------------------------------------------


def test_a_master_can_start_nothing_but_workers_of_its_job(containers: Harness) -> None:
    containers.platform(Behaviour.OBEDIENT)

    def start(**more: Any) -> None:
        request = {"call": "start", "log_start": 0, "command": ["sleep", "60"], "environment": {}}
        call(containers.folder, {**request, **more}, 60)

    for name in ("root", "edl-other-worker-0-0-00000000", "edl-suite-master-00000000", "../x"):
        with pytest.raises(CallRefusedError, match="not the name of a worker"):
            start(instance=name)
    # What the engine would take, if the call were the engine's own, changes nothing.
    name = "edl-suite-worker-0-0-0123abcd"
    start(
        instance=name,
        image="root:1",
        user="0:0",
        mounts=["/:/host"],
        privileged=True,
        host_config={"Privileged": True, "Binds": ["/:/host"]},
    )
    found = containers.inspect(InstanceId(name))
    assert found["Config"]["User"] == "1234:1234"
    assert found["Config"]["Image"] == containers.docker_env.bare
    assert not found["HostConfig"]["Privileged"]
    assert found["HostConfig"]["CapDrop"] == ["ALL"]
    seen = {each["Destination"] for each in found["Mounts"]}
    assert seen == {str(_MASTER_TESTS), "/run/edl.log"}, "not what is for the master alone"


def test_a_master_reaches_no_container_of_another_job(containers: Harness) -> None:
    containers.platform(Behaviour.OBEDIENT)
    name = "edl-suite-worker-7-0-0123abcd"  # of a job of this name, in another directory
    labels = {LABEL_JOB: "suite", LABEL_JOB_DIR: "/elsewhere/suite", LABEL_ROLE: "worker"}
    other = containers.engine.containers.run(
        containers.docker_env.bare, ["sleep", "600"], name=name, labels=labels, detach=True
    )
    try:
        for request in (
            {"call": "signal", "signal": "SIGKILL"},
            {"call": "remove"},
            {"call": "wait", "seconds": 1},
        ):
            with pytest.raises(CallRefusedError, match="of another job"):
                call(containers.folder, {**request, "instance": name}, 60)
        assert call(containers.folder, {"call": "list"}, 60) == {"containers": []}
        assert containers.is_alive(InstanceId(name))
    finally:
        other.remove(force=True)
