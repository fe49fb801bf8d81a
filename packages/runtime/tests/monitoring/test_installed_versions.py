"""What a process says of its own versions."""

from __future__ import annotations

import platform
from importlib import metadata

import pytest

from edl_runtime.monitoring.installed_versions import NAMES, installed_versions


def test_versions_are_named_as_the_packages_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"tensorflow-cpu": "2.21.0", "keras": "3.15.1"}

    def version(name: str) -> str:
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(metadata, "version", version)
    found = installed_versions()
    assert found.pop("python") == platform.python_version()
    assert found.pop("system") == platform.platform(terse=True)
    assert found == installed


def test_all_names_are_known() -> None:
    assert set(installed_versions()) <= set(NAMES)
