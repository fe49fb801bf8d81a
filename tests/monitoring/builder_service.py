"""A builder for tests of its metrics: the real service, with an engine and a registry in memory."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
from conftest import ROOT

sys.path.insert(0, str(ROOT / "packages" / "builder" / "tests"))

import zoos
from fakes import FakeEngine, FakeRegistry

from edl_builder.app import App
from edl_builder.config.builder_config import Config
from edl_builder.core.build_request import RequestPolicy
from edl_builder.core.ports import RegistryImage
from edl_builder.core.references import Reference
from edl_proto.v1 import builder_pb2 as pb
from edl_proto.v1 import builder_pb2_grpc

_CALL_S = 600.0


@dataclass
class Builder:
    """A service, the engine below it, and its folder of state."""

    app: App
    engine: FakeEngine
    state: Path

    def build(self, repository: str, requirements: str = "toolz==1.0.0\n") -> str:
        """Have a zoo built; the phase in which that ends, or the code of a failure."""
        # pip leaves out what is for another machine, but the engine has no such step yet.
        unique = f"{requirements}toolz==1.0.0 ; platform_version == '{repository}'\n"
        archive = zoos.tar({"requirements.txt": unique, "m.py": "x = 1\n"}, zipped=True)
        source = pb.ArchiveSource(nbytes=len(archive))
        spec = pb.BuildSpec(repository=repository, archive=source)
        asked = iter((pb.BuildRequest(spec=spec), pb.BuildRequest(chunk=archive)))
        last = "none"
        try:
            with grpc.insecure_channel(self.app.address) as channel:
                stub = builder_pb2_grpc.BuilderStub(channel)
                for news in stub.Build(asked, timeout=_CALL_S):
                    if news.WhichOneof("update") == "status":
                        last = pb.BuildPhase.Name(news.status.phase)
        except grpc.RpcError as error:
            return str(error.code())
        return last

    def fail(self, repository: str) -> str:
        """Request a build of a zoo whose packages cannot be installed."""
        return self.build(repository, "no-such-package\n")

    @contextlib.contextmanager
    def queue(self, builds: int) -> Iterator[None]:
        """Request several builds, none of which ends before the block does."""
        self.engine.hold.set()
        callers = [
            threading.Thread(target=self.build, args=(f"registry.test/queue/{number}",))
            for number in range(builds)
        ]
        for each in callers:
            each.start()
        try:
            yield
        finally:
            self.engine.hold.clear()
            for each in callers:
                each.join()


@contextlib.contextmanager
def running_builder(state: Path) -> Iterator[Builder]:
    """A builder with metrics on any port, until the block ends."""
    registry = FakeRegistry()
    registry.put(Reference("registry.test", "base", "1"), RegistryImage("sha256:" + "b" * 64, 1))
    engine = FakeEngine(registry)
    policy = RequestPolicy(default_base="registry.test/base:1", registries=("registry.test",))
    config = Config("127.0.0.1", 0, state, policy, metrics_port=0)
    with App(config, engine, registry) as app:
        yield Builder(app, engine, state)
