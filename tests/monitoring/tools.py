"""Programs that check what is for Prometheus and Grafana: promtool and dashboard-linter."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest

from tests.go_programs import GoPrograms

_LINTER = GoPrograms(
    name="dashboard-linter",
    module=Path(__file__).parent / "linter",
    packages={"dashboard-linter": "github.com/grafana/dashboard-linter"},
)


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
    """Where a program of Prometheus is; skips the test where it is not, but not in CI."""
    return shutil.which(name) or _do_without(f"{name} is not installed (apt install prometheus)")


def dashboard_linter() -> str:
    """Where Grafana's linter is; the first call on a machine builds it with Go.

    Skips the test where that is not possible, but not in CI.
    """
    if shutil.which("go") is None:
        _do_without("Go is not installed, which builds Grafana's dashboard-linter")
    try:
        return str(_LINTER.build() / "dashboard-linter")
    except subprocess.CalledProcessError as error:
        _do_without(f"Grafana's dashboard-linter cannot be built: {error}")


def _do_without(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
