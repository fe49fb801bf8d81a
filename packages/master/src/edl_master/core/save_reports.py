"""Handles the reports about snapshots and checkpoints."""

from __future__ import annotations

from typing import assert_never

from edl_master.core.components import JobComponents
from edl_master.core.effects import LogEvent, Severity
from edl_master.core.events import (
    CheckpointFailed,
    CheckpointTaken,
    SaveEvent,
    SnapshotSkipped,
    SnapshotTaken,
)
from edl_master.core.goodput import TimeCategory


class SaveReports:
    """Handles the ends of snapshots and checkpoints; the last may come after the job's end."""

    def __init__(self, components: JobComponents) -> None:
        self._components = components

    def take(self, event: SaveEvent, now: float) -> None:
        """Let the next one become due, and report checkpoints."""
        components = self._components
        match event:
            case SnapshotTaken():
                components.snapshots.record_completion(event.version, event.seconds, now)
                self._pushes_paused(event.paused_s)
            case SnapshotSkipped():
                components.snapshots.record_skip(now)
            case CheckpointTaken():
                components.checkpoints.record_end()
                self._pushes_paused(event.paused_s)
                components.emit(_checkpoint_taken(event))
            case CheckpointFailed():
                components.checkpoints.record_end()
                components.emit(_checkpoint_failed(event))
            case _:
                assert_never(event)

    def _pushes_paused(self, seconds: float) -> None:
        """Record that no worker could push while the values were copied."""
        holders = len(self._components.ledger.leases.holders)
        self._components.progress.goodput.reclassify(TimeCategory.CHECKPOINT, seconds * holders)


def _checkpoint_taken(event: CheckpointTaken) -> LogEvent:
    line = f"A checkpoint of parameter version {event.version} took {event.seconds:.1f} s."
    return LogEvent("CheckpointTaken", line, facts={"version": str(event.version)})


def _checkpoint_failed(event: CheckpointFailed) -> LogEvent:
    failure = event.failure
    line = f"The checkpoint of parameter version {event.version} was not stored: {failure.what}."
    facts = {"version": str(event.version), "where": failure.where}
    return LogEvent("CheckpointFailed", line, Severity.WARNING, facts)
