"""A machine is not asked for more workers than it could ever run."""

from __future__ import annotations

import os

import pytest

from edl.adapters.local.preflight_checks import check_workers
from edl_proto.errors import EdlError


def test_hundreds_of_workers_on_two_cores_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    check_workers(64)
    with pytest.raises(EdlError, match="this machine has 2 cores") as caught:
        check_workers(200)
    assert "--num-workers 2" in caught.value.remedy
    monkeypatch.setattr(os, "cpu_count", lambda: 32)
    check_workers(200)
