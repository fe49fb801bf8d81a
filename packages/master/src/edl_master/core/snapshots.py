"""Snapshots of a job's position: taken from the rooms, and put back into new ones."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from edl_master.core.names import TaskType
from edl_master.core.rooms import Rooms
from edl_master.core.settings import JobSettings

SNAPSHOT_FORMAT = 1
_KEPT_ROUNDS = (TaskType.TRAINING, TaskType.PREDICTION)
"""What these tasks have done is in the parameters or in files; the others start again."""


def identify(settings: JobSettings, data: tuple[int, ...]) -> dict[str, Any]:
    """Return what has to be equal for a position to mean the same: the cut and its order."""
    return {
        "type": settings.type.value,
        "records": sum(data),
        "files": sha256(",".join(map(str, data)).encode()).hexdigest(),
        "records_per_task": settings.records_per_task,
        "minibatch_size": settings.minibatch_size,
        "seed": settings.seed,
        "shuffle": settings.shuffle,
    }


def take_snapshot(rooms: Rooms, identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return the position as JSON-able values."""
    settings = rooms.settings
    return {
        "format": SNAPSHOT_FORMAT,
        "job": dict(identity),
        "workers_asked": [settings.min_workers, settings.max_workers],
        "ledger": rooms.ledger.snapshot(_KEPT_ROUNDS),
        "course": rooms.course.snapshot(),
        "evaluations": rooms.evaluations.snapshot(),
        "progress": rooms.progress.snapshot(),
        "members": rooms.members.snapshot(),
    }


def restore_snapshot(rooms: Rooms, identity: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
    """Put a position into the rooms of a new job.

    How many workers are wanted is kept, unless the job now asks for other numbers than then.

    Raises:
        ValueError: it is a position in other data, in another order, or of another format.
    """
    if saved["format"] != SNAPSHOT_FORMAT:
        raise ValueError(f"snapshot format {saved['format']} is not {SNAPSHOT_FORMAT}")
    for name, value in identity.items():
        was = saved["job"][name]
        if was != value:
            raise ValueError(f"the snapshot is of another job: {name} was {was}, is {value}")
    rounds = []
    for entry in saved["ledger"]["rounds"]:
        round_ = rooms.course.make_round(entry["number"])
        round_.restore(entry)
        rounds.append(round_)
    rooms.ledger.restore(saved["ledger"], rounds)
    rooms.evaluations.restore(saved["evaluations"])
    rooms.course.restore(saved["course"])
    rooms.progress.restore(saved["progress"])
    settings = rooms.settings
    scaled = saved["workers_asked"] == [settings.min_workers, settings.max_workers]
    rooms.members.restore(saved["members"], scaled=scaled)
