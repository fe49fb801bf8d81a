"""A service over real gRPC, with an engine and a registry in memory, and calls of it.

Its limits are the product's, which no machine is too slow for. What happens when one is reached is
seen by setting the clock forward.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import grpc
from fakes import FakeEngine, FakeRegistry

from edl_builder.adapters.clock import Clock
from edl_builder.app import App
from edl_builder.config.builder_config import Config
from edl_builder.control import build_service
from edl_builder.core.archive import ArchiveLimits
from edl_builder.core.build import BuildLimits
from edl_builder.core.build_request import RequestPolicy, Tenant
from edl_builder.core.identifiers import Caller
from edl_builder.core.ports import RegistryImage
from edl_builder.core.references import Reference
from edl_proto.errors import EdlError
from edl_proto.v1 import builder_pb2 as pb
from edl_proto.v1 import builder_pb2_grpc

BASE = "registry.test/base:1"
REPOSITORY = "registry.test/team-a/zoo"
ZOO = {"requirements.txt": "toolz==1.0.0\n", "m.py": "x = 1\n"}
DEADLINE_S = 200.0


def until(probe: Callable[[], object], deadline_s: float = DEADLINE_S) -> None:
    end = time.monotonic() + deadline_s
    while not probe():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.01)


class LeapingClock(Clock):
    """The service's clock, which tests set forward."""

    readings = 0

    def __call__(self) -> float:
        self.readings += 1
        return super().__call__()

    def leap(self, seconds: float) -> None:
        """Let time pass, and wait until the service has noticed what it means for its builds."""
        self._offset += seconds
        seen = self.readings
        # The first reading from now on begins a tick, the next one a later tick.
        until(lambda: self.readings >= seen + 2)


@dataclass
class Bench:
    """A service and what is below it."""

    config: Config
    registry: FakeRegistry
    engine: FakeEngine
    app: App
    clock: LeapingClock

    def abandon(self) -> None:
        """Let time pass until a build without subscribers is given up."""
        self.clock.leap(self.config.limits.abandon_s + 1)

    def stub(self) -> contextlib.AbstractContextManager[builder_pb2_grpc.BuilderStub]:
        return stub_to(self.app.address)

    def metric(self, name: str, **labels: str) -> float:
        return self.app.metrics.registry.get_sample_value(name, labels) or 0.0


@contextlib.contextmanager
def stub_to(
    address: str, credentials: grpc.ChannelCredentials | None = None
) -> Iterator[builder_pb2_grpc.BuilderStub]:
    channel = (
        grpc.secure_channel(address, credentials) if credentials else grpc.insecure_channel(address)
    )
    with channel:
        yield builder_pb2_grpc.BuilderStub(channel)


def settings(state: Path) -> Config:
    return Config(
        host="127.0.0.1",
        port=0,
        state_dir=state,
        policy=RequestPolicy(
            default_base=BASE,
            bases=("registry.test/bases/*",),
            registries=("registry.test",),
            archive_nbytes=100_000,
        ),
        limits=BuildLimits(building=2),
        archive=ArchiveLimits(100_000, 200_000, 100),
    )


@contextlib.contextmanager
def serving(config: Config, engine: FakeEngine | None = None) -> Iterator[Bench]:
    if engine is None:
        engine = FakeEngine(FakeRegistry())
        digest = "sha256:" + "b" * 64
        engine.registry.put(Reference("registry.test", "base", "1"), RegistryImage(digest, 1))
    clock = LeapingClock()
    with (
        mock.patch.object(build_service, "Clock", return_value=clock),
        App(config, engine, engine.registry) as app,
    ):
        yield Bench(config, engine.registry, engine, app, clock)


def requests(spec: pb.BuildSpec, archive: bytes, piece: int = 10_000) -> Iterator[pb.BuildRequest]:
    yield pb.BuildRequest(spec=spec)
    for start in range(0, len(archive), piece):
        yield pb.BuildRequest(chunk=archive[start : start + piece])


@dataclass
class Told:
    statuses: list[pb.BuildStatus]
    lines: list[str]
    status: grpc.StatusCode
    error: EdlError | None

    @property
    def last(self) -> pb.BuildStatus:
        return self.statuses[-1]


def spec_of(archive: bytes, /, **fields: object) -> pb.BuildSpec:
    given = {"repository": REPOSITORY, "archive": pb.ArchiveSource(nbytes=len(archive))}
    return pb.BuildSpec(**{**given, **fields})


def build(
    stub: builder_pb2_grpc.BuilderStub,
    archive: bytes,
    metadata: tuple[tuple[str, str], ...] = (),
    /,
    **fields: object,
) -> Told:
    call = stub.Build(
        requests(spec_of(archive, **fields), archive), timeout=DEADLINE_S, metadata=metadata
    )
    return read(call)


def read(call: grpc.CallIterator[pb.BuildProgress]) -> Told:
    statuses, lines = [], []
    try:
        for news in call:
            if news.WhichOneof("update") == "status":
                statuses.append(news.status)
            else:
                lines.append(news.line.text)
    except grpc.RpcError as error:
        code = error.code()
        return Told(statuses, lines, code, EdlError.from_rpc(error))
    return Told(statuses, lines, grpc.StatusCode.OK, None)


ANN = Tenant(Caller("ann"), ("registry.test/team-a/*",), ())
BOB = Tenant(Caller("bob"), ("registry.test/team-b/*",), ())
