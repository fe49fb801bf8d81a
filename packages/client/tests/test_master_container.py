"""The process that stays with a master's container, without an engine."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

import pytest

from edl import master_container
from edl.adapters import container_engine
from edl_proto.local import job_directory, supervision


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
