"""The port between the coordinator and the stores that apply its commands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from edl_master.core.identifiers import Version
from edl_master.core.parameters.commands import Command
from edl_master.core.parameters.layout import Layout
from edl_master.core.parameters.modes import UpdateMode
from edl_master.core.parameters.optimizers import Optimizer
from edl_master.core.parameters.shard_layout import SavedParameters, ShardLayout
from edl_master.core.parameters.snapshot import Snapshot
from edl_master.core.parameters.statistics import TableStatistics


@dataclass(frozen=True, slots=True)
class Model:
    """The model that a job trains, as its first worker has described it.

    Attributes:
        layout: variables and tables.
        optimizer: what an update does.
        optimizer_json: the same as the worker has sent it.
        mode: when there is an update.
    """

    layout: Layout
    optimizer: Optimizer
    optimizer_json: str
    mode: UpdateMode


@dataclass(frozen=True, slots=True)
class PendingSnapshot:
    """The snapshot of one moment, which stores may still have to take.

    Attributes:
        version: parameter version of that moment.
        label: names the parts that parameter servers write; empty if there are none.
        get: waits for the stores of this process; returns the snapshot. Not for a thread that
            holds the job's lock.
    """

    version: Version
    label: str
    get: Callable[[], Snapshot]


class Stores(Protocol):
    """One local store, or N parameter servers. Only ``begin`` and ``warm_up`` may take long."""

    def begin(self, model: Model, saved: SavedParameters | None) -> Snapshot | None:
        """Make the stores of a model; before the first command.

        Returns:
            What the ledger continues from; None at the beginning of a job.

        Raises:
            OptimizerUnsupported, SnapshotError, ValueError: the model cannot be served.
        """
        ...

    def warm_up(self) -> None:
        """Compile what updates need."""
        ...

    @property
    def shard_layouts(self) -> tuple[ShardLayout, ...]:
        """The layout of each parameter server's shard; empty if there are none."""
        ...

    @property
    def shared_sums(self) -> int:
        """Number of sums of squares that a push must bring, see ``sharding.shared_sum_count``."""
        ...

    @property
    def log_index(self) -> int:
        """The number of commands appended so far; 0 where no caller has to wait for them."""
        ...

    def append(self, command: Command) -> None:
        """Append to the command log. The caller's lock keeps the order of the commands."""
        ...

    def take_snapshot(self, ledger: dict[str, Any], place: str) -> PendingSnapshot:
        """Append a command to take a snapshot.

        Args:
            ledger: the state of the push ledger at this moment.
            place: where parameter servers write their parts.
        """
        ...

    def tables(self) -> TableStatistics:
        """Return the sizes of embedding tables, of all stores together."""
        ...
