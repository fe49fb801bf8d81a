"""The time between a snapshot and the master that continues from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edl_master.core.identifiers import WorkerId


@dataclass(frozen=True, slots=True)
class WorkersSeen:
    """The workers as the earlier master reported them last: one moment, later than the snapshot.

    Attributes:
        preemptions: so far.
        failures: so far.
        running: attempt of each instance that ran.
    """

    preemptions: int = 0
    failures: int = 0
    running: Mapping[WorkerId, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Interruption:
    """The time between the snapshot that a job is restored from and the restore.

    Attributes:
        undone_s: how long the earlier master worked on after the snapshot.
        down_s: how long the job had no master.
        records: trained, and computed again, as the earlier master counted them last.
        workers: as the earlier master reported them last; None: what the snapshot says.
    """

    undone_s: float = 0.0
    down_s: float = 0.0
    records: tuple[int, int] = (0, 0)
    workers: WorkersSeen | None = None


NO_INTERRUPTION = Interruption()
