"""Lets the tests of the master in a pod use the platform of threads of the master's own tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from edl_kubernetes.master import job_record

sys.path.append(str(Path(__file__).parents[2] / "master" / "tests"))


@pytest.fixture(autouse=True)
def one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let records be written once: their threads outlive a test, and would log in another."""
    monkeypatch.setattr(job_record, "_EVERY_S", 3600.0)
