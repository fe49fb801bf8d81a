"""The companion of a master's container, without an engine."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

import pytest
from recording_engine import RecordingEngine

from edl.adapters.local import container_engine, master_container
from edl.adapters.local.store_credentials import StoreAccess
from edl_proto.identity.names import Role
from edl_proto.v1 import job_pb2
from edl_runtime.identity.folder import IdentityFolder
from edl_runtime.local import job_directory, supervision


@pytest.fixture
def job_dir(tmp_path: Path) -> Path:
    spec = {"name": "boxed", "containers": {"engine": "unix:///nowhere"}}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    return tmp_path


@pytest.fixture
def identities(job_dir: Path) -> IdentityFolder:
    """What a client makes for a job with two parameter servers."""
    found = IdentityFolder(job_dir / "identity", "boxed")
    found.create([(Role.MASTER, None), (Role.CLIENT, None), (Role.WORKER, 0)])
    return found


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is done with containers; each ends with code 7."""
    done: list[tuple[str, str]] = []

    def start(container: container_engine.Container, *_: Any) -> None:
        done.append(("start", container.name))

    def await_end(container: container_engine.Container, _: Path) -> int:
        done.append(("await", container.name))
        return 7

    monkeypatch.setattr(master_container, "_start", start)
    monkeypatch.setattr(master_container, "_await_end", await_end)
    return done


def test_a_container_is_started_and_awaited(job_dir: Path, engine: list[tuple[str, str]]) -> None:
    assert master_container.run(job_dir) == 7
    assert [act for act, _ in engine] == ["start", "await"]
    record = json.loads((job_dir / "container.json").read_bytes())
    assert record["pid"] == os.getpid()


def test_a_container_whose_process_was_killed_is_found_again(
    job_dir: Path, engine: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_engine.Container, "is_alive", True)
    record = {"engine": "unix:///nowhere", "name": "edl-boxed-master-1", "pid": 1, "start_time": 1}
    (job_dir / "container.json").write_text(json.dumps(record))
    held = os.open(job_dir, os.O_RDONLY)  # by the master in the container
    fcntl.flock(held, fcntl.LOCK_EX)
    assert not supervision.has_master(job_dir), "the supervisor has to start another process"
    assert master_container.run(job_dir) == 7
    assert engine == [("await", "edl-boxed-master-1")]
    os.close(held)


def test_two_processes_never_stay_with_one_job(
    job_dir: Path, engine: list[tuple[str, str]]
) -> None:
    with (job_dir / "container.lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert master_container.run(job_dir) == job_directory.DIRECTORY_TAKEN
    assert not engine


def test_no_container_is_started_of_a_job_that_was_stopped_meanwhile(
    job_dir: Path, engine: list[tuple[str, str]]
) -> None:
    supervision.describe(job_dir, ["supervisor"], ["master"])
    supervision.release(job_dir)
    assert master_container.run(job_dir) == job_directory.DIRECTORY_TAKEN
    assert not engine


def test_a_master_sees_its_own_identities_and_never_the_authority(
    job_dir: Path,
    identities: IdentityFolder,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("EDL_HOME", str(home))
    taken = RecordingEngine()
    monkeypatch.setattr(container_engine, "client", lambda *_: taken)
    monkeypatch.delenv("EDL_LOG_FORMAT", raising=False)
    spec = job_pb2.JobSpec(
        name="boxed", image="zoo@sha256:1", training=job_pb2.TrainingSpec(parameter_servers=2)
    )
    spec.containers.master_image = "edl-base@sha256:2"
    container = container_engine.Container("unix:///nowhere", "edl-boxed-master-1")
    master_container._start(container, spec, job_dir, identities, StoreAccess())
    (made,) = taken.created
    folder = job_dir / "identity"
    mounts = {each["Target"]: each for each in made["host_config"]["mounts"]}
    # An empty folder covers the whole, and in it appear those of the container's processes.
    assert mounts[str(folder)]["Type"] == "tmpfs"
    assert mounts[str(folder)]["ReadOnly"]
    assert not mounts[str(folder)]["Source"]
    own = {path for path in mounts if path.startswith(f"{folder}/")}
    assert own == {str(folder / name) for name in ("master", "server-0", "server-1")}
    for path in own:
        assert mounts[path]["ReadOnly"]
        assert (Path(path) / "identity.pem").is_file()
    # Nothing else of the machine is seen, and never the engine; nor is it the image of the model.
    (kernels,) = {path for path in mounts if not Path(path).is_relative_to(job_dir)}
    assert Path(kernels).parent == home / "kernels", "compiled code, of this image alone"
    assert made["image"] == "edl-base@sha256:2"
    assert made["host_config"]["cap_drop"] == ["ALL"]
    assert made["host_config"]["read_only"]
    said = json.dumps([made[what] for what in ("entrypoint", "command", "environment", "labels")])
    assert "identity" not in said
    assert made["environment"]["EDL_LOG_FORMAT"] == "json"
