"""How often a master falls back to one and the same snapshot."""

from __future__ import annotations

import os

import pytest

from edl_master.core.identifiers import Version
from edl_master.parameter_servers.processes import Falls


def fall(falls: Falls, *versions: int | None) -> Falls:
    for version in versions:
        falls = falls.next(None if version is None else Version(version))
    return falls


@pytest.mark.parametrize(
    ("versions", "in_a_row"),
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
def test_falls_in_a_row_are_from_the_same_version(
    versions: tuple[int | None, ...], in_a_row: int
) -> None:
    falls = fall(Falls(), *versions)
    assert (falls.all, falls.in_a_row) == (len(versions), in_a_row)


def test_falls_are_carried_to_the_next_incarnation() -> None:
    falls = fall(Falls(), None, 7, 7)
    carried = {"EDL_MASTER_FALLS": f"{falls.all} {falls.in_a_row} {falls.version}"}
    assert Falls.read(carried) == falls
    assert Falls.read({}) == Falls.read({"EDL_MASTER_FALLS": "nonsense"}) == Falls()
    assert "EDL_MASTER_FALLS" not in os.environ
