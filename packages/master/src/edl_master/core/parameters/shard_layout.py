"""Divides the parameters of a model into shards, one for each parameter server.

The payload of parameters is cut into ranges of about equal bytes. A shard is an ordinary layout,
whose variables are pieces of the model's. The hash of an id selects the shard of its row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from edl_master.core.parameters.gradient_clip import ClipNorm, shared_sums
from edl_master.core.parameters.keras_config import OptimizerUnsupported
from edl_master.core.parameters.layout import ArenaKey, Array, Layout, Variable
from edl_master.core.parameters.layout_error import LayoutError
from edl_master.core.parameters.local_steps import is_local
from edl_master.core.parameters.modes import Async, Sync, UpdateMode
from edl_master.core.parameters.optimizers import Optimizer, ParameterGroup
from edl_master.core.parameters.slot_layout import slot_ranges
from edl_master.core.parameters.snapshot import Snapshot, Stored
from edl_master.core.parameters.tables.row_chunks import OwnedRows

_ASYNC = Async()

OwnedIds = Callable[[Array], Array]
"""From ids (int64) to a mask (bool, same shape) of those whose rows belong to a shard."""


@dataclass(frozen=True, slots=True)
class ShardLayout:
    """The part of a model that one process holds.

    Attributes:
        start, stop: its bytes of the payload of parameters.
        layout: its variables and pieces of such (flat, under the same names), and all tables.
    """

    start: int
    stop: int
    layout: Layout


@dataclass(frozen=True, slots=True)
class SavedParameters:
    """The parameters of a job as a snapshot has them.

    Attributes:
        coordinator: the ledger; also the values if the master held them.
        shards: the values that parameter servers held, in the order of the servers.
    """

    coordinator: Snapshot
    shards: tuple[Snapshot, ...] = ()

    def model(self) -> Layout:
        """Return the layout of the whole model.

        Raises:
            SnapshotError: the snapshot has an unknown format.
        """
        if not self.shards:
            return self.coordinator.layout()
        model = self.coordinator.meta["model"]
        return Layout.from_description(model["layout"], model["tables"])

    def shard(
        self, model: Layout, shard: ShardLayout, optimizer: Optimizer, owned: OwnedIds | None = None
    ) -> Snapshot:
        """Return the snapshot of one shard; see ``reshard`` for the arguments."""
        return reshard(self.shards or (self.coordinator,), model, shard, optimizer, owned)


def shared_sum_count(model: Layout, servers: int, optimizer: Optimizer, mode: UpdateMode) -> int:
    """Return how many sums of squares servers exchange before they clip a gradient."""
    if servers == 1 or is_local(mode):
        return 0  # with local steps, workers clip
    return sum(shared_sums(one.clipping, len(model.tables)) for one in optimizer.each)


def shard_layouts(
    model: Layout, servers: int, optimizer: Optimizer, mode: UpdateMode = _ASYNC
) -> tuple[ShardLayout, ...]:
    """Divide a model into shards, some of them empty if it has fewer elements than servers.

    Args:
        model: the layout of the whole model.
        servers: number of shards, at least 1.
        optimizer: with clipping by norm, or a rule of whole variables, boundaries are between
            variables.
        mode: when a gradient becomes an update.

    Raises:
        LayoutError: a variable without a gradient comes before one with a gradient.
        OptimizerUnsupported: shards cannot be updated independently of each other.
    """
    kinds = [variable.trainable for variable in model.variables]
    if kinds != sorted(kinds, reverse=True):
        raise LayoutError("with parameter servers, trainable variables must come first")
    if shared_sum_count(model, servers, optimizer, mode):
        _check_clipping(model, optimizer, mode)
    apart = optimizer.needs_whole_variables
    apart |= any(isinstance(one.clipping, ClipNorm) for one in optimizer.each)
    cuts = [0]
    for number in range(1, servers):
        wanted = model.parameter_nbytes * number // servers
        cuts.append(max(cuts[-1], _nearest_boundary(model, wanted, apart=apart)))
    cuts.append(model.parameter_nbytes)
    return tuple(ShardLayout(*ends, _pieces(model, *ends)) for ends in pairwise(cuts))


def whole_model(model: Layout) -> ShardLayout:
    """Return the shard of a master without parameter servers."""
    return ShardLayout(0, model.parameter_nbytes, model)


NO_SHARD = ShardLayout(0, 0, Layout(()))
"""The empty shard of a master with parameter servers."""


def shard_optimizer(optimizer: Optimizer, layout: Layout) -> Optimizer:
    """Return the optimizer of one shard, without the names of variables of other shards."""
    names = {v.name for v in layout.variables} | {t.name for t in layout.tables}
    others = tuple(
        ParameterGroup(shard_optimizer(other.optimizer, layout), other.variables & names)
        for other in optimizer.others
    )
    return replace(optimizer, undecayed=optimizer.undecayed & names, others=others)


def reshard(
    saved: Sequence[Snapshot],
    model: Layout,
    shard: ShardLayout,
    optimizer: Optimizer,
    owned: OwnedIds | None = None,
) -> Snapshot:
    """Return the snapshot of one shard, from snapshots of any number of shards.

    Args:
        saved: snapshots of one moment, in the order of the servers; one, if the master held all.
        model: the layout of the whole model.
        shard: the shard to assemble.
        optimizer: the job's, whose slots the snapshots hold.
        owned: which rows belong to the shard; None: all.

    Raises:
        ValueError: the saved rows or arenas do not have the sizes of the model.
    """
    arrays: dict[str, Stored] = {}
    ranges = slot_ranges(optimizer, model, shard.layout)
    for name in dict.fromkeys(name for one in saved for name in one.arrays):
        *_, kind, dtype = name.split("/")
        if kind in ("trainable", "state"):
            key = ArenaKey(kind == "trainable", dtype)
            start = _elements_before(model, shard.start, key)
            start, stop = ranges.get(name, (start, start + shard.layout.sizes.get(key, 0)))
            if start < stop:
                found = [one.arrays[name] for one in saved if name in one.arrays]
                arrays[name] = _elements([np.asarray(a) for a in found], start, stop)
    depth = 1 + len(optimizer.row_slots)
    for number, table in enumerate(shard.layout.tables):
        arrays |= _rows(saved, f"tables/{number}/rows/", table.dim * depth, owned)
        arrays |= _accumulated_rows(saved, f"accumulated/tables/{number}", owned)
        name = f"tables/{number}/admission"
        if sketches := [np.asarray(one.arrays[name]) for one in saved if name in one.arrays]:
            # Each id was counted by one server: the maximum never lowers the count of an id.
            arrays[name] = np.maximum.reduce(sketches)
    described = {
        "layout": shard.layout.describe(),
        "tables": [_table(saved, number) for number in range(len(shard.layout.tables))],
    }
    return Snapshot({**saved[0].meta, **described}, arrays)


# --- boundaries --------------------------------------------------------------------------


def _check_clipping(model: Layout, optimizer: Optimizer, mode: UpdateMode) -> None:
    """Check that what is clipped is one worker's gradient, which is sent with its sums."""
    if isinstance(mode, Sync) and mode.grads_to_wait > 1:
        problem = "set, with several parameter servers and updates of several gradients together"
        remedy = "use clipvalue, --parameter-servers 1, or --update async"
    elif any(table.min_count > 1 for table in model.tables):
        # Which rows exist is only known during the update, after the norm was sent.
        problem = "set, with several parameter servers and rows admitted by their frequency"
        remedy = "use clipvalue, --parameter-servers 1, or leave min_count out"
    else:
        return
    by_norm = any(isinstance(one.clipping, ClipNorm) for one in optimizer.each)
    option = "clipnorm" if by_norm else "global_clipnorm"
    raise OptimizerUnsupported(f"{optimizer.name}.{option}", problem, remedy)


def _nearest_boundary(model: Layout, wanted: int, *, apart: bool) -> int:
    """Return the boundary nearest to a byte: between two elements, or (``apart``) two variables."""
    at = 0
    for variable in model.variables:
        end = at + variable.nbytes
        if wanted < end:
            if apart:
                return at if wanted - at <= end - wanted else end
            return at + (wanted - at) // variable.itemsize * variable.itemsize
        at = end
    return at


def _pieces(model: Layout, start: int, stop: int) -> Layout:
    return Layout(_overlapping(model, start, stop), model.tables)


def _overlapping(model: Layout, start: int, stop: int) -> Iterator[Variable]:
    at = 0
    for variable in model.variables:
        first, last = max(at, start), min(at + variable.nbytes, stop)
        if first < last:
            size = (last - first) // variable.itemsize
            shape = variable.shape if size == variable.size else (size,)
            yield Variable(variable.name, shape, variable.dtype, variable.trainable)
        at += variable.nbytes


def _elements_before(model: Layout, start: int, key: ArenaKey) -> int:
    """Return how many elements of an arena are sent before a byte of the payload."""
    at = found = 0
    for variable in model.variables:
        if (variable.trainable, variable.dtype) == (key.trainable, key.dtype):
            found += min(max(start - at, 0), variable.nbytes) // variable.itemsize
        at += variable.nbytes
    return found


# --- snapshots -----------------------------------------------------------------------------


def _elements(arrays: Sequence[Array], start: int, stop: int) -> Array:
    """Return the elements ``start`` to ``stop`` of the concatenation of flat arrays."""
    pieces, at = [], 0
    for array in arrays:
        pieces.append(array[max(start - at, 0) : max(stop - at, 0)])
        at += array.size
    if at < stop:
        raise ValueError(f"an arena has {at} elements, not {stop}")
    kept = [piece for piece in pieces if piece.size]
    return kept[0] if len(kept) == 1 else np.concatenate(kept)


def _rows(
    saved: Sequence[Snapshot], prefix: str, width: int, owned: OwnedIds | None
) -> dict[str, Stored]:
    found: dict[str, Stored] = {}
    for one in saved:
        for name, packed in one.arrays.items():
            if name.startswith(prefix):
                mine = packed if owned is None else OwnedRows(packed, width, owned)
                found[f"{prefix}{len(found)}"] = mine
    return found


def _accumulated_rows(
    saved: Sequence[Snapshot], name: str, owned: OwnedIds | None
) -> dict[str, Array]:
    holders = [one.arrays for one in saved if f"{name}/ids" in one.arrays]
    if not holders:
        return {}
    ids = np.concatenate([np.asarray(arrays[f"{name}/ids"]) for arrays in holders])
    values = np.concatenate([np.asarray(arrays[f"{name}/values"]) for arrays in holders])
    keep = np.ones(ids.size, bool) if owned is None else owned(ids)
    return {f"{name}/ids": ids[keep], f"{name}/values": values[keep]}


def _table(saved: Sequence[Snapshot], number: int) -> dict[str, Any]:
    """Return the description of a table without its rows; clocks are those of the latest shard."""
    all_ = [one.meta["tables"][number] for one in saved]
    latest = {name: max(one[name] for one in all_) for name in ("now", "added")}
    return {**all_[0], **latest, "swept": 0}
