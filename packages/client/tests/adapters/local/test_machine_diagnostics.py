"""What ``edl doctor`` finds, function by function."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from edl.adapters.local import machine_diagnostics
from edl.core.diagnostics import Diagnostic, DiagnosticGrade


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, in a home without settings."""
    for name in ("EDL_ENGINE", "DOCKER_HOST", "XDG_CONFIG_HOME", "EDL_MASTER_COMMAND"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("EDL_PYTHON", sys.executable)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def platforms() -> dict[str, Diagnostic]:
    found = {each.subject: each for each in machine_diagnostics._platforms()}
    assert {each.grade for each in found.values()} == {DiagnosticGrade.NOTE}
    return found


def test_the_engine_of_the_settings_is_looked_at(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "edl.toml").write_text("engine = 'tcp://file.example.com:1'\n")
    assert "tcp://file.example.com:1" in platforms()["containers"].what
    monkeypatch.setenv("EDL_ENGINE", "tcp://variable.example.com:1")
    assert "tcp://variable.example.com:1" in platforms()["containers"].what
    (place / "edl.toml").write_text("engine = ")
    assert str(place / "edl.toml") in platforms()["settings"].what


def test_a_platform_that_is_not_installed_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edl.core.plugins.find_entry_points", lambda group: ())
    assert platforms()["docker"].remedy == "pip install edl-docker"


def test_a_command_of_masters_that_is_none_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDL_MASTER_COMMAND", "python 'x")
    monkeypatch.setattr(machine_diagnostics, "_probe", lambda _: ({"python": "3"}, ""))
    found = {(each.subject, each.grade): each for each in machine_diagnostics._interpreter()}
    assert "no closing quotation" in found["master", DiagnosticGrade.MISSING].what
    assert ("edl-worker", DiagnosticGrade.MISSING) in found, "the others are reported, too"
