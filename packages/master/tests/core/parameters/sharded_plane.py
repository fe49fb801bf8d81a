"""A parameter plane of several shards, for comparison with one of a single store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edl_master.core.identifiers import WorkerId
from edl_master.core.parameters.commands import (
    Command,
    TakeSnapshot,
)
from edl_master.core.parameters.layout import Array, Layout
from edl_master.core.parameters.modes import UpdateMode
from edl_master.core.parameters.optimizers import Optimizer
from edl_master.core.parameters.push import Gradient
from edl_master.core.parameters.shard import Shard
from edl_master.core.parameters.shard_layout import (
    SavedParameters,
    reshard,
    shard_layouts,
    shard_optimizer,
    shared_sum_count,
    whole_model,
)
from edl_master.core.parameters.snapshot import Snapshot
from edl_master.core.parameters.store import ParameterStore
from edl_master.core.parameters.tables.payloads import RowPayload
from edl_proto.transport.row_placement import server_of

from .planes import (
    GradientPush,
    LedgerWithCommands,
    ParameterPlane,
    join_payloads,
    row_ids,
    row_payload,
)


@dataclass
class ShardedPlane:
    """A ledger and the shards of its parameter servers, and what a worker sees of them."""

    model: Layout
    optimizer: Optimizer
    mode: UpdateMode
    servers: int
    log: list[Command] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.parts = shard_layouts(self.model, self.servers, self.optimizer, self.mode)
        self.sums = shared_sum_count(self.model, self.servers, self.optimizer, self.mode)
        self.coordinator = LedgerWithCommands(self.mode, self.optimizer, self.log.append)
        self.ledger = self.coordinator.ledger
        self.shards = [
            Shard(
                ParameterStore(p.layout, shard_optimizer(self.optimizer, p.layout), self.mode),
                self.sums > 0,
            )
            for p in self.parts
        ]

    def begin(self, values: bytes) -> None:
        for part, shard in zip(self.parts, self.shards, strict=True):
            shard.propose(WorkerId(0), values[part.start : part.stop])
        assert self.coordinator.commit_initial_values(WorkerId(0))

    def prepare(self, push: GradientPush) -> tuple[float, ...]:
        """Send every shard its part; return the sums of squares over all parts."""
        squares = []
        gradient = bytes(push.gradient.values)
        state = bytes(push.gradient.state_delta or b"")
        border = len(gradient)
        for number, (part, shard) in enumerate(zip(self.parts, self.shards, strict=True)):
            mine = state[max(part.start - border, 0) : max(part.stop - border, 0)]
            rows = []
            for table, ids, values in self._rows_of(push.gradient.rows):
                here = server_of(ids, self.servers) == number
                rows.append(row_payload(ids[here], values[here], table))
            part_gradient = Gradient(
                gradient[part.start : part.stop],
                mine if push.gradient.state_delta is not None else None,
                join_payloads(rows),
            )
            prepared = shard.store.prepare(part_gradient)
            shard.store.check_unique(prepared)
            assert prepared.not_finite == ""
            squares.append(shard.store.squares(prepared) if shard.shares_sums else ())
            shard.prepare(WorkerId(push.task.number), push.claim.key, prepared)
        return tuple(map(sum, zip(*squares, strict=True)))

    def _rows_of(self, payload: RowPayload | None) -> Iterator[tuple[int, Array, Array]]:
        """Yield each table of a payload, its ids and its values."""
        if payload is None:
            return
        ids, values = np.frombuffer(payload.ids, np.int64), np.frombuffer(payload.values, "f4")
        for table, count in zip(payload.tables, payload.counts, strict=True):
            dim = self.model.tables[table].dim
            yield table, ids[:count], values[: count * dim].reshape(count, dim)
            ids, values = ids[count:], values[count * dim :]

    def catch_up(self) -> None:
        """Let every shard apply the whole log."""
        for shard in self.shards:
            for command in self.log[shard.applied :]:
                shard.apply(command)

    def values(self) -> bytes:
        self.catch_up()
        out = bytearray(self.model.parameter_nbytes)
        for part, shard in zip(self.parts, self.shards, strict=True):
            assert shard.store.version == self.ledger.version
            shard.store.read_parameters(memoryview(out)[part.start : part.stop])
        return bytes(out)

    def rows(self, table: int, ids: Array) -> Array:
        self.catch_up()
        out = np.empty((ids.size, self.model.tables[table].dim), np.float32)
        for number, shard in enumerate(self.shards):
            here = server_of(ids, self.servers) == number
            wanted = row_ids(ids[here], table)
            buffer = bytearray(shard.store.rows_nbytes(wanted))
            shard.store.read_rows(wanted, memoryview(buffer))
            out[here] = np.frombuffer(buffer, np.float32).reshape(-1, out.shape[1])
        return out

    def save(self) -> SavedParameters:
        """A snapshot of the ledger, and those of the shards after the same command."""
        self.log.append(TakeSnapshot("x", "y"))
        model = {"layout": self.model.describe(), "tables": self.model.describe_tables()}
        decided = Snapshot({**self.ledger.describe(), "model": model}, {})
        parts = []
        for shard in self.shards:
            for command in self.log[shard.applied :]:
                taken = shard.apply(command)
            assert taken is not None
            parts.append(taken.snapshot)
        return SavedParameters(decided, tuple(parts))

    def reshard_to(self, servers: int) -> ShardedPlane:
        """Return the same state with another number of servers."""
        saved = self.save()
        other = ShardedPlane(self.model, self.optimizer, self.mode, servers)
        assert saved.model() == self.model
        other.ledger.restore(saved.coordinator.meta)
        for number, part in enumerate(other.parts):
            mine = reshard(saved.shards, self.model, part, self.optimizer, owner(number, servers))
            other.shards[number] = Shard(
                ParameterStore.restore(
                    mine,
                    shard_optimizer(self.optimizer, part.layout),
                    self.mode,
                    layout=part.layout,
                ),
                other.sums > 0,
            )
        return other

    def single(self) -> ParameterPlane:
        """Return the same state in one process."""
        saved = self.save()
        one = reshard(saved.shards, self.model, whole_model(self.model), self.optimizer)
        store = ParameterStore.restore(one, self.optimizer, self.mode, layout=self.model)
        plane = ParameterPlane(self.model, self.optimizer, self.mode, store=store)
        plane.ledger.restore(saved.coordinator.meta)
        return plane


def owner(number: int, servers: int) -> Any:
    return lambda ids: server_of(ids, servers) == number
