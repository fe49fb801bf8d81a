"""edl's own images: the worker's, and that it serves as the base of a zoo's."""

from __future__ import annotations

import importlib.util
import io
import json
import re
import tarfile
import uuid
from pathlib import Path
from typing import Any

import requests
import zoos

from edl_builder.core.recipe import EPOCH, SBOM

from .docker_environment import DockerEnvironment
from .service import build, serving

_DOCKER = Path(__file__).parents[2] / "deploy" / "docker"


_DIFFERS = """
import pathlib
paths = list(pathlib.Path("/opt/edl").rglob("*"))
heads = (path.read_bytes()[4:8] for path in paths if path.suffix == ".pyc")
kinds = {int.from_bytes(head, "little") for head in heads}
print({int(path.lstat().st_mtime) for path in paths}, kinds)
"""
"""The times of all files, and how compiled files are checked: 1 is by no time."""


def _load(module_name: str) -> Any:
    """Return a module of ``deploy/docker``."""
    path = _DOCKER / f"{module_name}.py"
    spec = importlib.util.spec_from_file_location(f"edl_{module_name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _names_in_layers(registry: str, repository: str, tag: str) -> list[list[str]]:
    """Return the paths in each layer of an image, the lowest layer first."""
    place = f"http://{registry}/v2/{repository}"
    media = "application/vnd.docker.distribution.manifest.v2+json"
    manifest = requests.get(f"{place}/manifests/{tag}", headers={"Accept": media}, timeout=300)
    found = []
    for layer in manifest.json()["layers"]:
        blob = requests.get(f"{place}/blobs/{layer['digest']}", timeout=300).content
        with tarfile.open(fileobj=io.BytesIO(blob)) as tar:
            found.append(tar.getnames())
    return found


def test_an_image_has_the_packages_that_its_lock_is_for() -> None:
    for name, (packages, _, _) in _load("lock").IMAGES.items():
        dockerfile = _DOCKER / f"{name.partition('-')[0]}.Dockerfile"
        if dockerfile.exists():  # "build" is the lock of a stage in all of them
            loop = re.search(r"for each in (packages/.*?); do", dockerfile.read_text())
            assert loop is not None, dockerfile
            assert loop[1].split() == [f"packages/{package}" for package in packages], dockerfile


def test_the_workers_image_is_a_base_for_zoos(
    docker_env: DockerEnvironment, tmp_path: Path
) -> None:
    """Leave TensorFlow out: its 600 MB change nothing here."""
    name = f"{docker_env.registry}/edl-test/worker"
    _load("images").build_image(
        "worker",
        tag=f"{name}:1",
        base=docker_env.bare,
        extra="",
        network="host",
        engine=docker_env.engine,
    )
    client = docker_env.client()
    try:
        image = client.images.get(f"{name}:1")
        assert image.attrs["Config"]["User"] == "10001:10001"
        assert image.labels["org.opencontainers.image.title"] == "edl-worker"
        assert image.labels["org.opencontainers.image.licenses"] == "Apache-2.0"
        asked = "command -v gcc g++ cc make ld || echo none"
        compilers = client.containers.run(image, ["sh", "-c", asked], remove=True)
        assert compilers.decode().strip() == "none"
        program = "import numpy; print(numpy.__cached__)"
        place = client.containers.run(image, ["python3", "-c", program], remove=True).decode()
        there = client.containers.run(image, ["ls", place.strip()], remove=True)
        assert there, "a container, which may write nothing, need not compile numpy"
        for news in client.api.push(f"{name}:1", stream=True, decode=True):
            assert "error" not in news, news
        below, own = _names_in_layers(docker_env.registry, "edl-test/worker", "1")[-2:]
        assert any("/site-packages/numpy/" in name for name in below)
        assert not any("/site-packages/edl_" in name for name in below)
        assert any("/site-packages/edl_worker/" in name for name in own)
        assert not any("/site-packages/numpy/" in name for name in own), "edl alone"
        # A whole second build takes a minute: this is in what two of them have differed.
        output = client.containers.run(image, ["python3", "-c", _DIFFERS], remove=True).decode()
        assert output.split() == [f"{{{EPOCH}}}", "{1}"]
        said = client.containers.run(image, ["cat", SBOM], remove=True)
        found = {each["name"]: each.get("version") for each in json.loads(said)["components"]}
        assert {"numpy", "edl-worker", "libc6"} <= set(found)
        options = ("--allow-base", f"{docker_env.registry}/edl-test/*")
        archive = zoos.tar({"requirements.txt": "toolz==1.0.0\n", "m.py": "import toolz\n"})
        with serving(docker_env, tmp_path / "state", *options) as service, service.caller() as stub:
            repository = f"{docker_env.registry}/tests/{uuid.uuid4().hex[:8]}"
            outcome = build(stub, repository, archive, base_image=f"{name}:1")
            assert outcome.error is None, outcome.text
        program = (
            "import os, m, edl_master, edl_worker, elasticdl; from importlib.util import find_spec;"
            "print(os.getuid(), find_spec('docker'))"
        )
        output = client.containers.run(
            outcome.last.result.image, ["python3", "-c", program], remove=True
        )
        assert output.decode().strip() == "10001 None", "no container uses an engine"
    finally:
        client.close()
