"""An image in which a whole job runs: master, worker and TensorFlow, on the bare base image.

The packages come from the cache of ``./dev``, so that nothing is downloaded twice on a machine;
the worker's own Dockerfile is tried in ``test_images.py``.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests import image_packages
from tests.debian_base import SITE

from . import layers
from .docker_environment import DockerEnvironment

_OURS: dict[str, tuple[str, ...]] = {
    "proto": (),
    "runtime": (),
    "spans": (),
    "recordio": (),
    "master": (),
    "worker": ("cpu",),
    "compat": (),
}


def make(docker_env: DockerEnvironment) -> None:
    """Put ``docker_env.job_base`` into the registry and the engine.

    Raises:
        Unavailable: a package cannot be had.
    """
    folder = docker_env.folder / f"job-base-{os.getpid()}"
    folder.mkdir()
    with _remove_after(folder):
        wanted = image_packages.outside(_OURS)
        # A developer's own environment has it from the last run, unless something else is wanted.
        tag = hashlib.sha256(repr(wanted).encode()).hexdigest()[:12]
        outside = f"{docker_env.registry}/edl-test/outside:{tag}"
        if not layers.exists(outside):
            image_packages.install_outside(folder / "outside", wanted)
            layers.add(docker_env.bare, folder / "outside", SITE, outside)
            shutil.rmtree(folder / "outside")
        image_packages.install_own(folder / "own", _OURS)
        env = ["HOME=/tmp", "PYTHONDONTWRITEBYTECODE=1"]
        layers.add(outside, folder / "own", SITE, docker_env.job_base, User="10001:10001", Env=env)
    client = docker_env.client()
    with contextlib.closing(client):
        client.images.pull(docker_env.job_base)


def make_submitter(docker_env: DockerEnvironment) -> str:
    """Return the name of an image with ``job_base`` and a client that knows databases.

    Raises:
        Unavailable: a package cannot be had.
    """
    image = f"{docker_env.registry}/edl-test/submitter:1"
    folder = docker_env.folder / f"submitter-{os.getpid()}"
    folder.mkdir()
    with _remove_after(folder):
        client: dict[str, tuple[str, ...]] = {"client": (), "convert": (), "sql": ()}
        image_packages.install_outside(folder / "site", image_packages.outside(client))
        image_packages.install_own(folder / "own", client)
        shutil.copytree(folder / "own", folder / "site", dirs_exist_ok=True)
        layers.add(docker_env.job_base, folder / "site", SITE, image, User="0:0")
    return image


def make_with_stores(docker_env: DockerEnvironment) -> str:
    """Return the name of an image with ``job_base`` and the clients of stores.

    Raises:
        Unavailable: a package cannot be had.
    """
    image = f"{docker_env.registry}/edl-test/stores:1"
    if not layers.exists(image):
        folder = docker_env.folder / f"stores-{os.getpid()}"
        folder.mkdir()
        with _remove_after(folder):
            image_packages.install_outside(folder / "site", ["gcsfs", "s3fs"])
            layers.add(docker_env.job_base, folder / "site", SITE, image)
    return image


@contextlib.contextmanager
def _remove_after(folder: Path) -> Iterator[None]:
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
