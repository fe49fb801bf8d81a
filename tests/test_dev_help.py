"""What ``./dev`` says about its commands that have options of their own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("help",), ("./dev check", "./dev test --all", "left out")),
        (("cluster", "--help"), ("usage: ./dev cluster", "up", "image", "down", "goes to pytest")),
        (("cluster", "-h"), ("usage: ./dev cluster",)),
        (("cluster", "up", "--help"), ("usage: ./dev cluster up", "--nodes", "--simulated-nodes")),
        (
            ("chaos", "--platform", "kubernetes", "--help"),
            ("usage: ./dev chaos --platform kubernetes", "  api-server stop", "(default: 180)"),
        ),
        (("chaos", "--help"), ("usage: ./dev chaos", "--platform kubernetes")),
    ],
    ids=" ".join,
)
def test_a_command_explains_itself(command: tuple[str, ...], words: tuple[str, ...]) -> None:
    done = subprocess.run(
        (str(ROOT / "dev"), *command), capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    for each in words:
        assert each in done.stdout
    assert "pytest.ini" not in done.stdout, "it is not the help of pytest"


def test_the_environment_of_developers_has_pip() -> None:
    pip = ROOT / ".venv" / "bin" / "pip"
    done = subprocess.run((pip, "--version"), capture_output=True, text=True, check=False)
    assert done.stdout.startswith("pip "), done.stderr
