"""What a checkpoint or a snapshot of a job is written from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edl_master.core.identifiers import Version
from edl_master.parameters.stores import PendingSnapshot


@dataclass(frozen=True, slots=True)
class CapturedState:
    """Ledger and parameters of one moment, for a checkpoint or a snapshot.

    Attributes:
        ledger: as ``JobStateMachine.snapshot`` returned it.
        plane: of the same moment; None for jobs on a trained model.
        paused_s: how long no worker could push meanwhile.
        oldest_split: the first one of a stream whose records are not all in it.
    """

    ledger: dict[str, Any]
    plane: PendingSnapshot | None
    paused_s: float
    oldest_split: int = 0

    @property
    def version(self) -> Version:
        """Parameter version; 0 where there are no parameters."""
        return self.plane.version if self.plane else Version(0)

    @property
    def label(self) -> str:
        """Name under which parameter servers write their shards; empty where there are none."""
        return self.plane.label if self.plane else ""
