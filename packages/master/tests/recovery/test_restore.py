"""How long a job stood still, by clocks that are never set."""

from __future__ import annotations

import time

import pytest

from edl_master.adapters.checkpoint_files import Checkpoint, Moment
from edl_master.adapters.job_directory import LastSeen
from edl_master.recovery import restore

S = 10**9
NOW = Moment("this boot", 1_000 * S)


@pytest.fixture(autouse=True)
def clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine was started 1000 s ago; the wall clock may be set at any time."""
    monkeypatch.setattr(Moment, "now", lambda: NOW)
    monkeypatch.setattr(time, "time", lambda: 50_000.0)


@pytest.mark.parametrize("set_by_s", [-7200.0, 0.0, 7200.0])
def test_a_clock_that_was_set_changes_no_duration(set_by_s: float) -> None:
    """Taken 10 s ago; its master worked on for 4 s and has been dead for 6 s."""
    found = Checkpoint({}, {}, taken=Moment("this boot", 990 * S))
    last = LastSeen(at_s=50_000.0 - 6.0 + set_by_s, job_s=34.0)
    assert restore._measure_loss(found, 30.0, last) == (4.0, 6.0)


def test_after_a_reboot_only_the_wall_clock_knows_how_long() -> None:
    found = Checkpoint({}, {}, taken=Moment("the boot before", 90_000 * S))
    assert restore._measure_loss(found, 30.0, LastSeen(49_000.0, 34.0)) == (4.0, 1000.0)
    assert restore._measure_loss(found, 30.0, LastSeen(51_000.0, 34.0)) == (4.0, 0.0)


def test_another_job_that_goes_on_from_a_checkpoint_has_lost_nothing() -> None:
    found = Checkpoint({}, {}, taken=Moment("this boot", S))
    assert restore._measure_loss(found, 30.0, None) == (0.0, 0.0)
