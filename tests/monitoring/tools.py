"""Programs that check what is for Prometheus and Grafana: promtool and dashboard-linter."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from edl_testing.requirements import do_without, require_program
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
    """Return the path of a program of Prometheus; without it the test is skipped or fails."""
    return require_program(name, "prometheus")


def dashboard_linter() -> str:
    """Return the path of Grafana's linter, which the first call on a machine builds with Go.

    Where that is not possible, the test is skipped or fails.
    """
    if shutil.which("go") is None:
        do_without("Go is not installed, which builds Grafana's dashboard-linter")
    try:
        return str(_LINTER.build() / "dashboard-linter")
    except subprocess.CalledProcessError as error:
        do_without(f"Grafana's dashboard-linter cannot be built: {error}")
