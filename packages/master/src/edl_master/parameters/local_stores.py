"""The one store of a master without parameter servers."""

from __future__ import annotations

import weakref
from typing import Any

from edl_master.core.identifiers import Version
from edl_master.core.parameters.arithmetic import Executor
from edl_master.core.parameters.commands import Command, TakeSnapshot
from edl_master.core.parameters.shard import Shard, ShardSnapshot
from edl_master.core.parameters.shard_layout import SavedParameters, ShardLayout, whole_model
from edl_master.core.parameters.snapshot import Snapshot
from edl_master.core.parameters.statistics import TableStatistics
from edl_master.core.parameters.store import ParameterStore
from edl_master.parameters.locked_shard import LockedShard
from edl_master.parameters.stores import Model, PendingSnapshot


class SnapshotFuture:
    """The snapshot of one command, once the command is applied."""

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None


class SnapshotFutures:
    """Futures by the labels of their commands; only those that are still wanted exist."""

    def __init__(self) -> None:
        self._futures: weakref.WeakValueDictionary[str, SnapshotFuture] = (
            weakref.WeakValueDictionary()
        )
        self._labels = 0

    def new(self) -> tuple[str, SnapshotFuture]:
        """Return a future, and the label for its command."""
        self._labels += 1
        label, future = str(self._labels), SnapshotFuture()
        self._futures[label] = future
        return label, future

    def fill(self, taken: ShardSnapshot) -> None:
        """Give a snapshot to its future; drop it if it is no longer wanted."""
        future = self._futures.pop(taken.command.label, None)
        if future is not None:
            future.snapshot = taken.snapshot


class LocalStores:
    """Implements ``Stores`` by one shard of this process.

    Args:
        shard: the shard; its ``on_snapshot`` is ``futures.fill``.
        futures: see there.
        executor: as in ``ParameterStore``.
    """

    shard_layouts: tuple[ShardLayout, ...] = ()
    shared_sums = 0
    log_index = 0

    def __init__(
        self, shard: LockedShard, futures: SnapshotFutures, executor: Executor | None = None
    ) -> None:
        self._shard = shard
        self._futures = futures
        self._executor = executor
        self._tables = TableStatistics()

    def begin(self, model: Model, saved: SavedParameters | None) -> Snapshot | None:
        layout, mode = model.layout, model.mode
        if saved is None:
            store = ParameterStore(layout, model.optimizer, mode, executor=self._executor)
        else:
            snapshot = saved.coordinator
            if saved.shards:
                snapshot = saved.shard(layout, whole_model(layout), model.optimizer)
            store = ParameterStore.restore(
                snapshot, model.optimizer, mode, layout=layout, executor=self._executor
            )
        self._shard.begin(Shard(store), layout.fingerprint)
        return saved.coordinator if saved else None

    def warm_up(self) -> None:
        self._shard.warm_up()

    def append(self, command: Command) -> None:
        self._shard.append(command)

    def take_snapshot(self, ledger: dict[str, Any], place: str) -> PendingSnapshot:
        label, future = self._futures.new()
        self._shard.append(TakeSnapshot(label, place))

        def get() -> Snapshot:
            self._shard.apply_pending()
            assert future.snapshot is not None, "the command was applied"
            return Snapshot({**future.snapshot.meta, **ledger}, future.snapshot.arrays)

        return PendingSnapshot(Version(ledger["version"]), "", get)

    def tables(self) -> TableStatistics:
        # Those of the last time while an update is being applied: the page need not wait.
        self._tables = self._shard.tables() or self._tables
        return self._tables
