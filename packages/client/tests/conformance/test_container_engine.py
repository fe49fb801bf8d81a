"""Jobs of containers while their engine does not answer."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_engine import FakeEngine

from edl.adapters.local.jobs import LocalJobBackend
from edl_docker import container_engine
from edl_docker.backend import local_containers
from edl_docker.container_engine import Container
from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.local import job_directory

ENGINE = "unix:///nowhere"


@pytest.fixture
def job_dir(tmp_path: Path) -> Path:
    """The directory of a job with a master and an engine that is away."""
    path = tmp_path / "jobs" / "boxed"
    path.mkdir(parents=True)
    spec = {"name": "boxed", "platform": "docker", "containers": {"engine": ENGINE}}
    (path / job_directory.SPEC).write_text(json.dumps(spec))
    record = {"engine": ENGINE, "name": "edl-boxed-1", "pid": 1, "start_time": 1}
    (path / job_directory.CONTAINER).write_text(json.dumps(record))
    master = {"address": "127.0.0.1:1", "pid": os.getpid(), "start_time": 1}
    (path / job_directory.MASTER).write_text(json.dumps(master))
    return path


@pytest.mark.parametrize(
    "act",
    [
        lambda jobs: jobs.stop("boxed", "at once", now=True),
        lambda jobs: jobs.delete("boxed"),
        lambda jobs: jobs.continuation.resume("boxed"),
    ],
    ids=["stop", "delete", "resume"],
)
def test_what_ends_containers_fails_while_their_engine_is_away(
    job_dir: Path, act: Callable[[LocalJobBackend], object]
) -> None:
    before = {path.name for path in job_dir.iterdir()}
    with pytest.raises(EdlError) as caught:
        act(local_containers(job_dir.parent))
    assert caught.value.code == ErrorCode.ENGINE_UNAVAILABLE
    assert before <= {path.name for path in job_dir.iterdir()}, "the record is lost"


def test_jobs_of_an_engine_that_is_away_are_shown(job_dir: Path) -> None:
    jobs = local_containers(job_dir.parent)
    assert [entry.name for entry in jobs.list()] == ["boxed"]
    assert not jobs.status("boxed").answered
    assert jobs.reach("boxed") == ""


def test_a_container_that_is_gone_needs_no_end(job_dir: Path) -> None:
    with FakeEngine([]) as engine:
        gone = Container(engine.url, "gone")
        assert not gone.is_alive
        for number in (signal.SIGTERM, signal.SIGKILL):
            gone.send(number)
        (job_dir / job_directory.CONTAINER).write_text(
            json.dumps({"engine": engine.url, "name": "gone"})
        )
        assert container_engine.of_job(job_dir) == []
        local_containers(job_dir.parent).delete("boxed")
    assert not job_dir.exists()


@pytest.mark.parametrize(
    ("url", "is_here"),
    [
        ("unix:///run/docker.sock", True), ("tcp://127.0.0.1:2375", True),
        ("tcp://localhost:2375", True), ("tcp://[::1]:2375", True),
        ("tcp://10.0.0.1:2375", False), ("tcp://localhost.evil.test:2375", False),
        ("ssh://localhost", False), ("unix://run/docker.sock", False), ("docker.sock", False),
    ],
)  # fmt: skip
def test_an_engine_is_on_this_machine(url: str, is_here: bool) -> None:
    if is_here:
        assert container_engine.engine_url(url, {}) == url
        return
    with pytest.raises(EdlError, match="not an engine of this machine") as caught:
        container_engine.engine_url("", {"DOCKER_HOST": url})
    assert caught.value.where == "$DOCKER_HOST"
