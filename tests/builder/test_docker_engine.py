"""The promises of every engine, kept by a real one with a real registry."""

from __future__ import annotations

import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from conformance.engine_suite import EngineSuite

from edl_builder.adapters.docker_engine import DockerEngine
from edl_builder.adapters.registry import HttpRegistry, RegistryAccess
from edl_builder.core.names import BuilderError, Reason
from edl_builder.core.recipe import IMAGE_LABEL
from edl_builder.core.references import Reference, parse_reference

from .docker_world import World, free_port


class _Harness:
    def __init__(self, world: World) -> None:
        self._world = world
        access = {world.registry: RegistryAccess(plain_http=True)}
        self.engine = DockerEngine(world.engine, "host", access)
        self.registry = HttpRegistry(access)
        base = parse_reference(world.base, "base")
        found = self.registry.find(base)
        assert found is not None
        self.base = replace(base, tag="", digest=found.digest)
        self.repository = Reference(world.registry, "suite/zoo")

    def leftovers(self) -> tuple[int, int]:
        client = self._world.client()
        try:
            mark = {"label": f"{IMAGE_LABEL}=1", "dangling": True}
            return len(client.images.list(filters=mark)), len(client.containers.list(all=True))
        finally:
            client.close()

    def hold(self, context: Path) -> None:
        """In place of pip comes a step that does not end."""
        with tarfile.open(context) as tar:
            file = tar.extractfile("Dockerfile")
            assert file is not None
            recipe = file.read().decode()
        head, _, _ = recipe.partition("RUN PIP_BREAK")
        (context.parent / "Dockerfile").write_text(f"{head}RUN sleep 100000\n")
        with tarfile.open(context, "a") as tar:
            tar.add(context.parent / "Dockerfile", "Dockerfile")

    def has_image(self, name: Reference) -> bool:
        client = self._world.client()
        try:
            return bool(client.images.list(name=str(name)))
        finally:
            client.close()


class TestDockerEngine(EngineSuite):
    @pytest.fixture
    def harness(self, world: World) -> _Harness:
        return _Harness(world)


def test_an_engine_that_is_not_there_is_a_clear_refusal(tmp_path: Path) -> None:
    with pytest.raises(BuilderError) as refused:
        DockerEngine(f"unix://{tmp_path}/none.sock").ping()
    assert refused.value.failure.reason is Reason.ENGINE
    assert "none.sock" in refused.value.failure.where


def test_a_registry_that_is_not_there_is_a_clear_refusal() -> None:
    host = f"127.0.0.1:{free_port()}"
    registry = HttpRegistry({host: RegistryAccess(plain_http=True)})
    with pytest.raises(BuilderError) as refused:
        registry.find(Reference(host, "a/b", "c"))
    assert refused.value.failure.reason is Reason.REGISTRY


def test_a_registry_without_tls_is_refused_with_the_option_that_allows_it(world: World) -> None:
    with pytest.raises(BuilderError) as refused:
        HttpRegistry({}).find(Reference(world.registry, "a/b", "c"))
    assert f"--plain-http {world.registry}" in refused.value.failure.remedy
