"""Real engine, real registry, real base image: once per run."""

from __future__ import annotations

import contextlib
import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Edl

from edl_proto.local.containers import LABEL_JOB_DIR

_ROOT = Path(__file__).parents[2]
# The suite that every engine passes, and its archives.
sys.path.insert(0, str(_ROOT / "packages" / "builder" / "tests"))

from . import job_base  # noqa: E402  (needs the path above)
from .docker_world import (  # noqa: E402  (the same)
    NoEngine,
    World,
    missing_requirements,
    open_world,
    until,
)


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    """An engine and a registry with a base image; skipped, or failed in CI, where none can be."""
    reason = missing_requirements()
    if not reason:
        try:
            with open_world() as found:
                yield found
            return
        except NoEngine as error:
            reason = str(error)
    if os.environ.get("CI"):
        pytest.fail(f"the builder's tests must run in CI: {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def job_world(world: World) -> World:
    """The same with ``world.job_base``, an image in which a whole job runs."""
    job_base.make(world)
    return world


@pytest.fixture
def in_containers(job_world: World, edl: Edl) -> Iterator[Edl]:
    """The command ``edl`` with this engine and registry; no container may be left behind it."""
    edl.env |= {
        "EDL_ENGINE": job_world.engine,
        "EDL_REPOSITORY": f"{job_world.registry}/jobs/{uuid.uuid4().hex[:8]}",
        "EDL_BASE_IMAGE": job_world.job_base,
        "EDL_BUILD_NETWORK": "host",
        "EDL_PLATFORM": "docker",
    }
    yield edl
    try:
        until("all containers of the jobs are gone", lambda: not of_jobs(job_world, edl))
    finally:
        for container in of_jobs(job_world, edl):
            with contextlib.suppress(Exception):
                container.remove(force=True)


def of_jobs(world: World, edl: Edl, role: str = "") -> list[Any]:
    """Containers of the jobs of this home."""
    client = world.client()
    with contextlib.closing(client):
        return [
            each
            for each in client.containers.list(
                all=True, filters={"label": LABEL_JOB_DIR}, ignore_removed=True
            )
            if each.labels[LABEL_JOB_DIR].startswith(f"{edl.home}/")
            and role in ("", each.labels["io.edl.role"])
        ]
