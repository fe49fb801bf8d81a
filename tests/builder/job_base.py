"""An image in which a whole job runs: master, worker and TensorFlow, on the world's bare one.

The packages come from the cache of ``./dev``, so that nothing is downloaded twice on a machine;
the worker's own Dockerfile is tried in ``test_images.py``.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import layers
from .docker_world import NoEngine, World, cache

_ROOT = Path(__file__).parents[2]
_OURS = ("proto", "recordio", "master", "worker")
_EXTRAS = {"master": "docker", "worker": "cpu"}
_PYTHON = "3.11"  # Debian bookworm's
_SITE = f"/usr/local/lib/python{_PYTHON}/dist-packages"
# Headers, static data and tools that no job touches: what is smaller is sooner pushed.
_DULL = ("tensorflow/include", "pyarrow/include", "bin")


def make(world: World) -> None:
    """Put ``world.job_base`` into the registry and the engine.

    Raises:
        NoEngine: a package cannot be had.
    """
    folder = world.folder / f"job-base-{os.getpid()}"
    folder.mkdir()
    with _removed(folder):
        wanted = sorted(set(_outside()))
        # A developer's own world has it from the last run, unless something else is wanted now.
        tag = hashlib.sha256(repr(wanted).encode()).hexdigest()[:12]
        outside = f"{world.registry}/edl-test/outside:{tag}"
        if not layers.exists(outside):
            _install(folder / "outside", *wanted)
            for dull in _DULL:
                shutil.rmtree(folder / "outside" / dull, ignore_errors=True)
            layers.add(world.bare, folder / "outside", _SITE, outside)
            shutil.rmtree(folder / "outside")
        _install(folder / "own", "--no-deps", *(str(_ROOT / "packages" / name) for name in _OURS))
        env = ["HOME=/tmp", "PYTHONDONTWRITEBYTECODE=1"]
        layers.add(outside, folder / "own", _SITE, world.job_base, User="10001:10001", Env=env)
    client = world.client()
    with contextlib.closing(client):
        client.images.pull(world.job_base)


def _outside() -> Iterator[str]:
    for name in _OURS:
        project = tomllib.loads((_ROOT / "packages" / name / "pyproject.toml").read_text())
        wanted = list(project["project"]["dependencies"])
        wanted += project["project"].get("optional-dependencies", {}).get(_EXTRAS.get(name), [])
        yield from (each for each in wanted if not each.startswith("edl-"))


def _install(to: Path, *what: str) -> None:
    kept = cache()
    uv = shutil.which("uv") or next(map(str, sorted(kept.glob("uv-*/bin/uv"))), "")
    if not uv:
        raise NoEngine("there is no uv; ./dev setup gets it")
    environment = {"UV_CACHE_DIR": str(kept / "packages"), "UV_SYSTEM_CERTS": "1", **os.environ}
    command: list[Any] = [
        # Compiled here, since containers may write nothing: TensorFlow starts six seconds sooner.
        *(uv, "pip", "install", "--quiet", "--compile-bytecode"),
        *("--python", sys.executable, "--target", to),
        *("--python-version", _PYTHON, "--no-build-isolation"),
        *("--constraint", _ROOT / "requirements.lock", *what),
    ]
    for offline in (["--offline"], []):
        done = subprocess.run(
            [*command, *offline],
            env=environment,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        if not done.returncode:
            return
    raise NoEngine(f"packages for an image cannot be had: {done.stderr[-500:]}")


@contextlib.contextmanager
def _removed(folder: Path) -> Iterator[None]:
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
