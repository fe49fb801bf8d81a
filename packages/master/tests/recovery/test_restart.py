"""How often a master restarts from one and the same snapshot."""

from __future__ import annotations

import os

import pytest

from edl_master.core.identifiers import Version
from edl_master.recovery.restart import RestartCount, is_rollback


def restarts(count: RestartCount, *versions: int | None) -> RestartCount:
    for version in versions:
        count = count.next(None if version is None else Version(version))
    return count


@pytest.mark.parametrize(
    ("versions", "consecutive"),
    [
        ((None,), 1),
        ((None, None, None), 3),
        ((0,), 1),
        ((None, 0), 1),  # a snapshot of version 0 is more than none
        ((7, 7), 2),
        ((7, 7, 9), 1),
        ((7, 9, 9, 9), 3),
    ],
)
def test_consecutive_restarts_are_from_the_same_version(
    versions: tuple[int | None, ...], consecutive: int
) -> None:
    count = restarts(RestartCount(), *versions)
    assert (count.total, count.consecutive) == (len(versions), consecutive)


def test_the_count_is_carried_to_the_next_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDL_MASTER_RESTARTS", "")
    count = restarts(RestartCount(), None, 7, 7)
    count.write()
    assert is_rollback()
    assert RestartCount.take() == count
    assert not is_rollback()
    assert "EDL_MASTER_RESTARTS" not in os.environ, "a supervisor started here would pass it on"
    assert RestartCount.take({}) == RestartCount()
    assert RestartCount.take({"EDL_MASTER_RESTARTS": "nonsense"}) == RestartCount()
