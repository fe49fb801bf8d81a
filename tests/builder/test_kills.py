"""``kill -9`` of the service at every point of a build: retried or reported, and nothing leaks."""

from __future__ import annotations

import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import zoos
from git_server import Remote
from git_server import serving as git_serving

from edl_proto.errors import ErrorCode
from edl_proto.v1 import builder_pb2 as pb

from .docker_environment import DockerEnvironment, until
from .service import Service, left_in, read, requests, serving, spec_for

News = Callable[[pb.BuildProgress], bool]


@dataclass(frozen=True)
class Point:
    """Where in a build the service dies: at the first news that is ``at``."""

    at: News
    git: bool = False
    sent: bool = True
    """Whether all of the archive is sent before."""


def phase(wanted: pb.BuildPhase.ValueType) -> News:
    return lambda news: news.status.phase == wanted


def line(*words: str) -> News:
    return lambda news: all(word in news.line.text for word in words)


POINTS = {
    "while the archive comes": Point(phase(pb.RECEIVING), sent=False),
    "when the archive is judged": Point(line("files, ")),
    "while git fetches": Point(phase(pb.FETCHING), git=True),
    "while it is looked for": Point(phase(pb.RESOLVING)),
    "when its key is known": Point(line("key ")),
    "when the build begins": Point(phase(pb.BUILDING)),
    "while packages are installed": Point(line("RUN", "requirements")),
    "at the last step": Point(line("USER 10001")),
    "while it is pushed": Point(phase(pb.PUSHING)),
    "at the end": Point(phase(pb.DONE)),
}


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    files = {"m.py": "x = {number}\n", "requirements.txt": "toolz==1.0.0\n"}
    with git_serving(tmp_path_factory.mktemp("git"), files=files) as found:
        yield found


@pytest.mark.parametrize("where", list(POINTS))
def test_killed(
    where: str,
    docker_env: DockerEnvironment,
    remote: Remote,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    point = POINTS[where]
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    settings = tmp_path / "builder.toml"
    settings.write_text(
        f'[git_policy]\nprivate_hosts = ["127.0.0.1:{remote.port}"]\nca_file = "{remote.ca}"\n'
    )
    state, options = tmp_path / "state", ("--config", str(settings))
    repository = f"{docker_env.registry}/kills/{uuid.uuid4().hex[:8]}"
    # Unique: neither the registry nor the engine's cache has it.
    unique = f"toolz==1.0.0 ; platform_version != '{repository}'\n"
    archive = zoos.tar({"requirements.txt": unique, "m.py": "x = 1\n"})
    spec = spec_for(repository, archive)
    if point.git:
        git = pb.GitSource(url=remote.url(), ref="v1", folder="zoo")
        spec = pb.BuildSpec(repository=repository, git=git, labels={"of": repository[-8:]})
    until("nothing is there", lambda: left_in(docker_env) == (0, 0))

    with serving(docker_env, state, *options) as first:
        _until_killed(first, spec, archive, point)

    with serving(docker_env, state, *options) as second, second.caller() as stub:
        builds = list(stub.List(pb.ListBuildsRequest()).builds)
        for each in builds:
            outcome = read(stub.Watch(pb.WatchBuildRequest(id=each.id), timeout=200))
            assert outcome.error is None
            if outcome.last.phase != pb.DONE:
                assert outcome.last.phase == pb.BUILD_FAILED
                assert outcome.last.error.code == ErrorCode.BUILDER_RESTARTED
                assert outcome.last.error.remedy
        if point.sent and not point.git:
            assert len(builds) == 1
        after = read(stub.Build(_messages(spec, archive), timeout=200))
        assert after.error is None, after.text
        assert after.last.phase == pb.DONE
        until("nothing is left", lambda: left_in(docker_env) == (0, 0))
    kept = {path.name for path in (state / "builds").rglob("*") if path.is_file()}
    assert kept <= {"build.json", "log.jsonl"}
    assert list(scratch.iterdir()) == []


def _until_killed(service: Service, spec: pb.BuildSpec, archive: bytes, point: Point) -> None:
    """Ask for the build, and kill the service when it is at the point."""
    over = threading.Event()

    def kill(news: pb.BuildProgress) -> None:
        if point.at(news) and service.process.poll() is None:
            os.kill(service.process.pid, signal.SIGKILL)
            service.process.wait()
            over.set()

    def messages() -> Iterator[pb.BuildRequest]:
        whole = list(_messages(spec, archive))
        yield from whole if point.sent else [whole[0], pb.BuildRequest(chunk=archive[:1000])]
        if not point.sent:
            over.wait(200)

    with service.caller() as stub:
        outcome = read(stub.Build(messages(), timeout=200), kill)
    assert over.is_set(), f"this point was never reached: {outcome.phases}\n{outcome.text}"


def _messages(spec: pb.BuildSpec, archive: bytes) -> Iterator[pb.BuildRequest]:
    if spec.WhichOneof("source") == "git":
        return iter([pb.BuildRequest(spec=spec)])
    return requests(spec, archive)
