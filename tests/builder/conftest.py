"""Real engine, real registry, real base image: once per run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
# The suite that every engine passes, and its archives.
sys.path.insert(0, str(_ROOT / "packages" / "builder" / "tests"))

from .docker_world import NoEngine, World, open_world, why_not  # noqa: E402


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    """An engine and a registry with a base image; skipped, or failed in CI, where none can be."""
    reason = why_not()
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
