"""The stores of a master with parameter servers: they apply what the command log says."""

from __future__ import annotations

from typing import Any

from edl_master.core.identifiers import Version
from edl_master.core.parameters.commands import Command, TakeSnapshot
from edl_master.core.parameters.model_check import check_fit
from edl_master.core.parameters.shard_layout import (
    NO_SHARD,
    SavedParameters,
    ShardLayout,
    shard_layouts,
    shared_sum_count,
)
from edl_master.core.parameters.snapshot import FORMAT, Snapshot
from edl_master.core.parameters.statistics import TableStatistics
from edl_master.parameters.stores import Model, PendingSnapshot
from edl_master.server_group.group import ParameterServerGroup


class RemoteStores:
    """Implements ``Stores`` by N parameter servers.

    Args:
        group: the servers.
    """

    def __init__(self, group: ParameterServerGroup) -> None:
        self._group, self._log = group, group.log
        self._model: Model | None = None
        self._shard_layouts: tuple[ShardLayout, ...] = ()
        self._shared_sums = 0

    def begin(self, model: Model, saved: SavedParameters | None) -> Snapshot | None:
        layout, optimizer, mode = model.layout, model.optimizer, model.mode
        check_fit(optimizer, layout, mode)
        self._shard_layouts = shard_layouts(layout, self._log.count, optimizer, mode)
        self._shared_sums = shared_sum_count(layout, self._log.count, optimizer, mode)
        decided = None
        if saved is not None:
            decided = saved.coordinator
            if not saved.shards:
                decided = saved.shard(layout, NO_SHARD, optimizer)
            decided.check(NO_SHARD.layout, optimizer, mode)
        self._model = model
        self._log.begin(layout, model.optimizer_json, mode)
        return decided

    def warm_up(self) -> None:
        """Do nothing: the servers do that themselves."""

    @property
    def shard_layouts(self) -> tuple[ShardLayout, ...]:
        return self._shard_layouts

    @property
    def shared_sums(self) -> int:
        return self._shared_sums

    @property
    def log_index(self) -> int:
        return self._log.index

    def append(self, command: Command) -> None:
        self._log.append(command)

    def take_snapshot(self, ledger: dict[str, Any], place: str) -> PendingSnapshot:
        assert self._model is not None, "there are values"
        label = self._log.next_label()
        self._log.append(TakeSnapshot(label, place))
        layout = self._model.layout
        meta = {
            **ledger,
            "format": FORMAT,
            "layout": NO_SHARD.layout.describe(),
            "tables": NO_SHARD.layout.describe_tables(),
            "optimizer": dict(self._model.optimizer.config),
            "model": {"layout": layout.describe(), "tables": layout.describe_tables()},
            "label": label,
        }
        snapshot = Snapshot(meta, {})
        return PendingSnapshot(Version(ledger["version"]), label, lambda: snapshot)

    def tables(self) -> TableStatistics:
        return self._group.tables()
