"""The state folder and its lock."""

from __future__ import annotations

import errno
import fcntl
from pathlib import Path

import pytest

from edl_builder.adapters.build_store import BuildStore, StateInUseError


def test_a_folder_is_one_builders_at_a_time(tmp_path: Path) -> None:
    first = BuildStore(tmp_path)
    with pytest.raises(StateInUseError, match="another builder works in"):
        BuildStore(tmp_path)
    first.close()
    BuildStore(tmp_path).close()


def test_a_disk_without_locks_is_not_taken_for_another_builder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match="No locks available"):
        BuildStore(tmp_path)
