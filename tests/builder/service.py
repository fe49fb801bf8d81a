"""The service as a process, and a caller who knows nothing but its contract."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from edl_proto.v1 import builder_pb2 as pb
from edl_proto.v1 import builder_pb2_grpc

from .docker_environment import DockerEnvironment

_CHUNK = 64 * 1024
_CALL_S = 600.0


@dataclass
class Service:
    """A running service."""

    process: subprocess.Popen[str]
    address: str
    metrics_port: int
    log: Path

    def caller(self) -> contextlib.AbstractContextManager[builder_pb2_grpc.BuilderStub]:
        """Stubs on a connection of their own."""
        return _stub(self.address)


@contextlib.contextmanager
def _stub(address: str) -> Iterator[builder_pb2_grpc.BuilderStub]:
    with grpc.insecure_channel(address) as channel:
        yield builder_pb2_grpc.BuilderStub(channel)


@contextlib.contextmanager
def serving(docker_env: DockerEnvironment, state: Path, *options: str) -> Iterator[Service]:
    """``python -m edl_builder`` with the environment's engine and registry."""
    log = state.parent / f"{state.name}.log"
    with log.open("ab") as file:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "edl_builder", "--state-dir", str(state)),
                *("--engine", docker_env.engine, "--network", "host"),
                *("--registry", docker_env.registry, "--plain-http", docker_env.registry),
                *("--base-image", docker_env.base, "--metrics-port", "0"),
                # Even if this run is killed, it ends with it.
                *("--until-stdin-closes", *options),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            start_new_session=True,
            env={**os.environ, "EDL_LOG_LEVEL": "INFO"},
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, log.read_text()
        where = json.loads(line)
        yield Service(process, where["address"], where["metrics_port"], log)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(200)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.returncode == 0, log.read_text()[-2000:]


@dataclass
class Outcome:
    """The messages that a call of Build or Watch has received."""

    statuses: list[pb.BuildStatus] = field(default_factory=list)
    lines: list[pb.LogLine] = field(default_factory=list)
    error: grpc.RpcError | None = None

    @property
    def last(self) -> pb.BuildStatus:
        return self.statuses[-1]

    @property
    def text(self) -> str:
        return "\n".join(line.text for line in self.lines)

    @property
    def phases(self) -> list[str]:
        found: list[str] = []
        for status in self.statuses:
            name = pb.BuildPhase.Name(status.phase)
            if not found or found[-1] != name:
                found.append(name)
        return found


def requests(spec: pb.BuildSpec, archive: bytes) -> Iterator[pb.BuildRequest]:
    """The messages of a call."""
    yield pb.BuildRequest(spec=spec)
    for start in range(0, len(archive), _CHUNK):
        yield pb.BuildRequest(chunk=archive[start : start + _CHUNK])


def spec_for(repository: str, archive: bytes, **fields: object) -> pb.BuildSpec:
    """A request with an archive."""
    source = pb.ArchiveSource(nbytes=len(archive))
    return pb.BuildSpec(repository=repository, archive=source, **fields)


def build(
    stub: builder_pb2_grpc.BuilderStub,
    repository: str,
    archive: bytes,
    on_news: Callable[[pb.BuildProgress], None] = lambda _: None,
    metadata: Sequence[tuple[str, str]] = (),
    **fields: object,
) -> Outcome:
    """Build an archive, to its end."""
    spec = spec_for(repository, archive, **fields)
    return read(
        stub.Build(requests(spec, archive), timeout=_CALL_S, metadata=tuple(metadata)), on_news
    )


def read(
    call: Iterator[pb.BuildProgress], on_news: Callable[[pb.BuildProgress], None] = lambda _: None
) -> Outcome:
    """Read a stream to its end."""
    found = Outcome()
    try:
        for news in call:
            if news.WhichOneof("update") == "status":
                found.statuses.append(news.status)
            else:
                found.lines.append(news.line)
            on_news(news)
    except grpc.RpcError as error:
        found.error = error
    return found


def left_in(docker_env: DockerEnvironment) -> tuple[int, int]:
    """How many half-built images of the builder are in the engine, and how many containers."""
    client = docker_env.client()
    try:
        # Not the list with all details: an image may go while it is made.
        half_built = client.api.images(filters={"dangling": True, "label": "io.edl.image=1"})
        return len(half_built), len(client.containers.list(all=True, ignore_removed=True))
    finally:
        client.close()
