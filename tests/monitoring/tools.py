"""Debian's Prometheus and promtool."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest


def promtool(*arguments: str, text: str | None = None) -> str:
    """Run it, which must succeed; give what it says."""
    done = subprocess.run(
        [find("promtool"), *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


def find(name: str) -> str:
    """Where a program is; skips the test where it is not, but not in CI."""
    found = shutil.which(name)
    if found is None:
        reason = f"{name} is not installed (apt install prometheus)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found
