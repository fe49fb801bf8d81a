"""The process that runs a job's container, without an engine."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from edl_docker import container_engine, job_container
from edl_docker.store_credentials import StoreAccess
from edl_proto.identity.names import Role
from edl_proto.v1 import job_pb2
from edl_runtime.identity.folder import IdentityFolder
from edl_runtime.local import job_directory, supervision
from edl_testing.recording_engine import RecordingEngine


@pytest.fixture
def job_dir(tmp_path: Path) -> Path:
    spec = {"name": "boxed", "containers": {"engine": "unix:///nowhere"}}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    return tmp_path


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is done with containers; each ends with code 7."""
    done: list[tuple[str, str]] = []

    def start(container: container_engine.Container, *_: Any) -> None:
        done.append(("start", container.name))

    def await_end(container: container_engine.Container, _: Path) -> int:
        done.append(("await", container.name))
        return 7

    monkeypatch.setattr(job_container, "_start", start)
    monkeypatch.setattr(job_container, "_await_end", await_end)
    return done


def test_a_container_is_started_and_awaited(job_dir: Path, engine: list[tuple[str, str]]) -> None:
    assert job_container.run(job_dir) == 7
    assert [act for act, _ in engine] == ["start", "await"]
    record = json.loads((job_dir / "container.json").read_bytes())
    assert record["pid"] == os.getpid()


def test_a_container_whose_process_was_killed_is_found_again(
    job_dir: Path, engine: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_engine.Container, "is_alive", True)
    record = {"engine": "unix:///nowhere", "name": "edl-boxed-1", "pid": 1, "start_time": 1}
    (job_dir / "container.json").write_text(json.dumps(record))
    assert not supervision.has_master(job_dir), "the supervisor has to start another process"
    assert job_container.run(job_dir) == 7
    assert engine == [("await", "edl-boxed-1")], "though its master may be starting"


def test_two_processes_never_stay_with_one_job(
    job_dir: Path, engine: list[tuple[str, str]]
) -> None:
    with (job_dir / "container.lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert job_container.run(job_dir) == job_directory.DIRECTORY_TAKEN
    assert not engine


def test_no_container_is_started_of_a_job_that_was_stopped_meanwhile(
    job_dir: Path, engine: list[tuple[str, str]]
) -> None:
    supervision.describe(job_dir, ["supervisor"], ["master"])
    supervision.release(job_dir)
    assert job_container.run(job_dir) == job_directory.DIRECTORY_TAKEN
    assert not engine


def test_a_container_sees_its_job_and_cannot_change_what_processes_outside_trust(
    job_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    identities = IdentityFolder(job_dir / "identity", "boxed")
    identities.create([(role, None) for role in (Role.MASTER, Role.CLIENT, Role.VIEWER)])
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("EDL_HOME", str(home))
    taken = RecordingEngine()
    monkeypatch.setattr(container_engine, "client", lambda *_: taken)
    monkeypatch.delenv("EDL_LOG_FORMAT", raising=False)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    supervision.describe(job_dir, ["supervisor"], ["master"])
    spec = job_pb2.JobSpec(name="boxed", image="zoo@sha256:1")
    container = container_engine.Container("unix:///nowhere", "edl-boxed-1")
    job_container._start(container, spec, job_dir, StoreAccess())
    (made,) = taken.created
    mounts = {each["Target"]: each for each in made["host_config"]["mounts"]}
    found = {path: each["ReadOnly"] for path, each in mounts.items() if each["Type"] == "bind"}
    for name in ("", "logs", "snapshots", "identity"):
        assert found.pop(str(job_dir / name)) is False
    for name in ("spec.json", "supervisor.json", "identity/authority.pem"):
        assert found.pop(str(job_dir / name)) is True
    # Nothing else of the machine is seen, and never the engine.
    ((kernels, _),) = found.items()
    assert Path(kernels).parent == home / "kernels", "compiled code, of this image alone"
    # Clients write their identities where no link of the container can lie.
    hidden = {path for path, each in mounts.items() if each["Type"] == "tmpfs"}
    assert hidden == {str(job_dir / "identity" / name) for name in ("client", "viewer")}
    assert made["host_config"]["cap_drop"] == ["ALL"]
    assert made["host_config"]["read_only"]
    assert made["environment"]["EDL_LOG_FORMAT"] == "json"
    assert "hidden" not in json.dumps(made)


@pytest.mark.parametrize("gpus", ["", "none", "each", "shared"])
def test_a_container_gets_the_gpus_of_the_machine_if_its_job_wants_them(
    job_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: str
) -> None:
    monkeypatch.setenv("EDL_HOME", str(tmp_path / "home"))
    taken = RecordingEngine()
    monkeypatch.setattr(container_engine, "client", lambda *_: taken)
    container = container_engine.Container("unix:///nowhere", "edl-boxed-1")
    spec = job_pb2.JobSpec(name="boxed", image="zoo@sha256:1", gpus=gpus)
    job_container._start(container, spec, job_dir, StoreAccess())
    requests = taken.created[0]["host_config"]["device_requests"]
    if gpus in ("", "none"):
        assert requests is None
        return
    (request,) = requests
    assert request["Count"] == -1, "all of them: the master gives each worker one"
    assert set(request["Capabilities"][0]) == {"gpu", "compute", "utility"}


# --- the script of the container ----------------------------------------------------------------


def run_script(
    tmp_path: Path, master: str, settled_s: int = 0
) -> tuple[subprocess.Popen[bytes], Path]:
    """Run the script with a shell command as the master; return the process and its log."""
    log = tmp_path / "a log"
    script = job_container._SCRIPT.format(
        no_master=69, log=shlex.quote(str(log)), settled_s=settled_s
    )
    script = script[script.index("trap ") :]  # it looks for edl_master before
    child = subprocess.Popen(["sh", "-c", script, "sh", "sh", "-c", master])
    return child, log


def test_a_settled_master_that_is_killed_is_replaced_within_the_container(tmp_path: Path) -> None:
    child, log = run_script(tmp_path, f"cd {tmp_path}; echo up; [ -e x ] || {{ >x; kill -9 $$; }}")
    assert child.wait(200) == 0
    assert log.read_text() == "up\nup\n"


@pytest.mark.parametrize(
    ("master", "code"),
    [("kill -9 $$", 137), ("kill -TERM $$", 143), ("exit 1", 1), ("exit 0", 0), ("exit 75", 75)],
)
def test_another_end_of_a_master_ends_its_container(tmp_path: Path, master: str, code: int) -> None:
    child, log = run_script(tmp_path, f"echo up; {master}", settled_s=1000)
    assert child.wait(200) == code
    assert log.read_text() == "up\n"


def test_a_master_that_exits_is_not_replaced_however_long_it_lived(tmp_path: Path) -> None:
    child, log = run_script(tmp_path, "echo up; exit 3")
    assert child.wait(200) == 3
    assert log.read_text() == "up\n"


def test_a_container_that_is_asked_to_end_lets_its_master_finish(tmp_path: Path) -> None:
    master = f"trap 'sleep 0.3; echo saved; trap - TERM; kill -TERM $$' TERM; >{tmp_path}/up; "
    child, log = run_script(tmp_path, master + "while :; do sleep 0.05; done")
    deadline = time.monotonic() + 200
    while not (tmp_path / "up").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    child.terminate()
    assert child.wait(200) == 143, "no other master is started"
    assert log.read_text() == "saved\n"
