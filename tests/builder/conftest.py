"""Real engine, real registry, real base image: once per run."""

from __future__ import annotations

import contextlib
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Edl

from edl_docker.container_engine import LABEL_JOB_DIR
from edl_testing.requirements import do_without

_ROOT = Path(__file__).parents[2]
# The suite that every engine passes, and its archives.
sys.path.insert(0, str(_ROOT / "packages" / "builder" / "tests"))

from . import job_base  # noqa: E402  (needs the path above)
from .docker_environment import (  # noqa: E402  (the same)
    DockerEnvironment,
    NoEngine,
    missing_requirements,
    open_environment,
    until,
)


@pytest.fixture(scope="session")
def docker_env() -> Iterator[DockerEnvironment]:
    """An engine and a registry with a base image; where none can be, tests are skipped or fail."""
    reason = missing_requirements()
    if not reason:
        try:
            with open_environment() as found:
                yield found
            return
        except NoEngine as error:
            reason = str(error)
    do_without(reason)


@pytest.fixture(scope="session")
def job_docker_env(docker_env: DockerEnvironment) -> DockerEnvironment:
    """Return ``docker_env`` with ``job_base``, an image in which a whole job runs."""
    job_base.make(docker_env)
    return docker_env


@pytest.fixture
def in_containers(job_docker_env: DockerEnvironment, edl: Edl) -> Iterator[Edl]:
    """The command ``edl`` with this engine and registry; no container may be left behind it."""
    edl.env |= {
        "EDL_ENGINE": job_docker_env.engine,
        "EDL_REPOSITORY": f"{job_docker_env.registry}/jobs/{uuid.uuid4().hex[:8]}",
        "EDL_BASE_IMAGE": job_docker_env.job_base,
        "EDL_BUILD_NETWORK": "host",
        "EDL_PLATFORM": "docker",
    }
    yield edl
    try:
        until("all containers of the jobs are gone", lambda: not of_jobs(job_docker_env, edl))
    finally:
        for container in of_jobs(job_docker_env, edl):
            with contextlib.suppress(Exception):
                container.remove(force=True)


def of_jobs(docker_env: DockerEnvironment, edl: Edl) -> list[Any]:
    """Containers of the jobs of this home."""
    client = docker_env.client()
    with contextlib.closing(client):
        return [
            each
            for each in client.containers.list(
                all=True, filters={"label": LABEL_JOB_DIR}, ignore_removed=True
            )
            if each.labels[LABEL_JOB_DIR].startswith(f"{edl.home}/")
        ]
