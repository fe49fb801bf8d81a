"""Skips or fails tests whose requirements the machine lacks."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest

WHOLE = "EDL_TEST_ALL"
"""The variable that ``./dev test --all`` sets: then nothing may be missing."""


def everything_is_required() -> bool:
    """Whether a test has to fail if its machine lacks something."""
    return bool(os.environ.get(WHOLE))


def do_without(reason: str) -> NoReturn:
    """Skip the test, or fail it in ``./dev test --all``, because the machine lacks something."""
    if everything_is_required():
        pytest.fail(reason)
    pytest.skip(reason)


def require(missing: str) -> None:
    """Skip or fail the test if ``missing`` names anything."""
    if missing:
        do_without(f"missing: {missing}")


def require_program(name: str, package: str) -> str:
    """Return the path of a program; without it the test is skipped or fails.

    Args:
        name: of the program.
        package: Debian's package of it.
    """
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return shutil.which(name, path=path) or do_without(
        f"{name} is not installed (apt install {package})"
    )
