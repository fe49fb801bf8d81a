"""The promises of every engine, kept by a real one with a real registry."""

from __future__ import annotations

import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from conformance.engine_suite import EngineSuite

from edl_builder.adapters.cancellation import CancellationFlag
from edl_builder.adapters.docker_engine import DockerEngine
from edl_builder.adapters.engine_images import steps_name
from edl_builder.adapters.registry import HttpRegistry
from edl_builder.core.failure import BuilderError, Reason
from edl_builder.core.recipe import IMAGE_LABEL, SBOM
from edl_builder.core.references import Reference, parse_reference
from edl_registry.registry import RegistryAccess
from tests.ports import free_port

from .docker_environment import DockerEnvironment


class _Harness:
    def __init__(self, docker_env: DockerEnvironment) -> None:
        self._docker_env = docker_env
        access = {docker_env.registry: RegistryAccess(plain_http=True)}
        self.engine = DockerEngine(docker_env.engine, "host", access)
        self.registry = HttpRegistry(access)
        base = parse_reference(docker_env.base, "base")
        found = self.registry.find(base)
        assert found is not None
        self.base = replace(base, tag="", digest=found.digest)
        self.repository = Reference(docker_env.registry, "suite/zoo")

    def leftovers(self) -> tuple[int, int]:
        client = self._docker_env.client()
        try:
            mark = {"label": f"{IMAGE_LABEL}=1", "dangling": True}
            return len(client.images.list(filters=mark)), len(client.containers.list(all=True))
        finally:
            client.close()

    def hold(self, context: Path) -> None:
        """Replace pip by a step that does not end."""
        with tarfile.open(context) as tar:
            file = tar.extractfile("Dockerfile")
            assert file is not None
            recipe = file.read().decode()
        head, _, _ = recipe.partition("RUN PIP_BREAK")
        (context.parent / "Dockerfile").write_text(f"{head}RUN sleep 100000\n")
        with tarfile.open(context, "a") as tar:
            tar.add(context.parent / "Dockerfile", "Dockerfile")

    def has_image(self, name: Reference) -> bool:
        client = self._docker_env.client()
        try:
            return bool(client.images.list(name=str(name)))
        finally:
            client.close()


class TestDockerEngine(EngineSuite):
    @pytest.fixture
    def harness(self, docker_env: DockerEnvironment) -> _Harness:
        return _Harness(docker_env)


def test_equal_contexts_make_equal_images_without_a_cache_too(
    docker_env: DockerEnvironment, tmp_path: Path
) -> None:
    harness, suite = _Harness(docker_env), TestDockerEngine()
    name = replace(harness.repository, tag="equal")
    files = {"requirements.txt": "toolz==1.0.0\n", "deep/er/m.py": "x = 1"}
    context = suite.context(harness, tmp_path, files)
    digests = []
    for _ in range(2):
        lines: list[str] = []
        suite.build(harness, context, name, lines)
        assert any("Collecting toolz" in line for line in lines), "nothing is left of the last one"
        digests.append(harness.engine.push(name, lines.append, CancellationFlag()))
        assert harness.engine.prune(0)
        assert not harness.has_image(steps_name(name))
    assert digests[0] == digests[1]
    client = docker_env.client()
    try:
        image = f"{harness.repository.repository}@{digests[0]}"
        client.images.pull(image)
        said = client.containers.run(image, ["cat", SBOM], remove=True)
        client.images.remove(image)
    finally:
        client.close()
    names = {each["purl"] for each in json.loads(said)["components"]}
    assert "pkg:pypi/toolz@1.0.0" in names
    assert any(each.startswith("pkg:deb/debian/libc6@") for each in names)


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


def test_a_registry_without_tls_is_refused_with_the_option_that_allows_it(
    docker_env: DockerEnvironment,
) -> None:
    with pytest.raises(BuilderError) as refused:
        HttpRegistry({}).find(Reference(docker_env.registry, "a/b", "c"))
    assert f"--plain-http {docker_env.registry}" in refused.value.failure.remedy
