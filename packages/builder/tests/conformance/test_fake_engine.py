"""The fake is as good as the real one."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import FakeEngine, FakeRegistry

from conformance.engine_suite import EngineSuite
from edl_builder.core.ports import RegistryImage
from edl_builder.core.references import Reference


class _Harness:
    base = Reference("registry.test", "base", digest="sha256:" + "b" * 64)
    repository = Reference("registry.test", "zoo")

    def __init__(self) -> None:
        self.registry = FakeRegistry()
        self.engine = FakeEngine(self.registry)
        self.registry.put(self.base, RegistryImage(self.base.digest, 1))

    def leftovers(self) -> tuple[int, int]:
        return len(self.engine.half_built), self.engine.running

    def hold(self, context: Path) -> None:
        self.engine.hold.set()

    def has_image(self, name: Reference) -> bool:
        return str(name) in self.engine.images()


class TestFakeEngine(EngineSuite):
    @pytest.fixture
    def harness(self) -> _Harness:
        return _Harness()
