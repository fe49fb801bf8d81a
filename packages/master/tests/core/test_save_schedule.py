"""When snapshots and checkpoints become due."""

from __future__ import annotations

import itertools

from edl_master.core.identifiers import Version
from edl_master.core.save_schedule import CheckpointSchedule, SnapshotSchedule


def test_no_snapshot_is_due_while_one_is_being_written() -> None:
    schedule = SnapshotSchedule(5.0)
    assert schedule.is_due(0.0)
    assert not any(schedule.is_due(float(now)) for now in range(1, 1000)), "the disk is slow"
    schedule.record_completion(Version(3), 0.1, 1000.0)
    assert schedule.saved_version == 3
    assert not schedule.is_due(1004.9)
    assert schedule.is_due(1005.0)


def test_snapshots_take_a_twentieth_of_the_time() -> None:
    schedule = SnapshotSchedule(5.0)
    assert schedule.is_due(0.0)
    schedule.record_completion(Version(1), 10.0, 10.0)
    assert not schedule.is_due(209.9)
    assert schedule.is_due(210.0)


def test_a_skipped_snapshot_is_due_again_soon() -> None:
    schedule = SnapshotSchedule(60.0)
    assert schedule.is_due(0.0)
    schedule.record_skip(0.0)
    assert not schedule.is_due(0.9)
    assert schedule.is_due(1.0)
    assert schedule.saved_version is None


def test_snapshots_can_be_turned_off() -> None:
    assert not SnapshotSchedule(0.0).is_due(1000.0)


def due(schedule: CheckpointSchedule, *updates: int) -> list[int]:
    """The versions, of these, at which a checkpoint is due."""
    pairs = itertools.pairwise(updates)
    return [after for before, after in pairs if schedule.is_due(Version(before), Version(after))]


def test_one_checkpoint_at_a_time_and_one_that_was_missed_follows() -> None:
    schedule = CheckpointSchedule(4)
    assert due(schedule, 0, 3, 4, 7, 8, 12, 13) == [4], "the store is slow"
    schedule.record_end()
    assert due(schedule, 13, 14, 15, 16) == [14], "due at 8 and 12: once"
    schedule.record_end()
    assert due(schedule, 16, 17) == [17], "due at 16"
    schedule.record_end()
    assert due(schedule, 17, 19, 21) == [21]


def test_checkpoints_can_be_turned_off() -> None:
    assert due(CheckpointSchedule(0), 0, 1, 2, 3) == []
