"""An image in which a whole job runs: master, worker and TensorFlow, on the bare base image.

What it has of others is that of the image of jobs on a cluster; the worker's own Dockerfile is
tried in ``test_images.py``.
"""

from __future__ import annotations

import contextlib

from tests import image_packages, job_image

from . import layers
from .docker_environment import DockerEnvironment

_OURS = ("proto", "runtime", "spans", "recordio", "master", "worker", "compat")
_CLIENT: dict[str, tuple[str, ...]] = {"client": (), "convert": (), "sql": ()}


def make(docker_env: DockerEnvironment) -> None:
    """Put ``docker_env.job_base`` into the registry and the engine.

    Raises:
        Unavailable: a package cannot be had.
    """
    env = ["HOME=/tmp", "PYTHONDONTWRITEBYTECODE=1"]
    own = image_packages.own("own-in-containers", _OURS)
    added = (job_image.outside(), own)
    layers.add(docker_env.bare, added, docker_env.job_base, User="10001:10001", Env=env)
    client = docker_env.client()
    with contextlib.closing(client):
        client.images.pull(docker_env.job_base)


def make_submitter(docker_env: DockerEnvironment) -> str:
    """Return the name of an image with ``job_base`` and a client that knows databases.

    Raises:
        Unavailable: a package cannot be had.
    """
    image = f"{docker_env.registry}/edl-test/submitter:1"
    outside = image_packages.outside("outside-submitter", _CLIENT)
    own = image_packages.own("own-submitter", _CLIENT)
    layers.add(docker_env.job_base, (outside, own), image, User="0:0")
    return image


def make_with_stores(docker_env: DockerEnvironment) -> str:
    """Return the name of an image with ``job_base`` and the clients of stores.

    Raises:
        Unavailable: a package cannot be had.
    """
    image = f"{docker_env.registry}/edl-test/stores:1"
    if not layers.exists(image):
        outside = image_packages.outside("outside-stores", {}, "gcsfs", "s3fs")
        layers.add(docker_env.job_base, (outside,), image)
    return image
