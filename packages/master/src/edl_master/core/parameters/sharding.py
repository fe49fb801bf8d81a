"""How the parameters of a model are cut into parts, one for each parameter server.

The payload of parameters is cut into ranges of about equal bytes. A part is an ordinary layout,
whose variables are pieces of the model's. Rows of tables go where the hash of their id says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from edl_master.core.parameters.clipping import ClipNorm, shared_sums
from edl_master.core.parameters.faults import LayoutError
from edl_master.core.parameters.keras_config import OptimizerUnsupported
from edl_master.core.parameters.layout import ArenaKey, Array, Layout, Variable
from edl_master.core.parameters.modes import Async, Sync, UpdateMode
from edl_master.core.parameters.optimizers import Optimizer
from edl_master.core.parameters.snapshot import Snapshot, Stored
from edl_master.core.parameters.tables.saving import pack, unpack

_ASYNC = Async()

Mine = Callable[[Array], Array]
"""Which of some ids (int64) are of this part, as booleans."""


@dataclass(frozen=True, slots=True)
class ShardLayout:
    """What one process has of a model.

    Attributes:
        start, stop: its bytes of the payload of parameters.
        layout: its pieces of variables, flat and under their names, and all tables.
    """

    start: int
    stop: int
    layout: Layout


@dataclass(frozen=True, slots=True)
class SavedParameters:
    """What was kept of a job's parameters at one moment.

    Attributes:
        decided: the master's plane.
        parts: those of the parameter servers, in their order; empty if the master served.
    """

    decided: Snapshot
    parts: tuple[Snapshot, ...] = ()

    def model(self) -> Layout:
        """The layout of the whole.

        Raises:
            SnapshotError: it is of a format that is not known here.
        """
        if not self.parts:
            return self.decided.layout()
        model = self.decided.meta["model"]
        return Layout.from_description(model["layout"], model["tables"])

    def part(
        self, model: Layout, part: ShardLayout, optimizer: Optimizer, mine: Mine | None = None
    ) -> Snapshot:
        """As ``recut`` of what was kept."""
        return recut(self.parts or (self.decided,), model, part, optimizer, mine)


def sums_between(model: Layout, servers: int, optimizer: Optimizer, mode: UpdateMode) -> int:
    """How many sums of each gradient servers need of one another before they can clip it."""
    if servers == 1 or (isinstance(mode, Async) and mode.local):
        return 0  # with local steps the optimizer is at work in workers
    return shared_sums(optimizer.clipping, len(model.tables))


def cut(
    model: Layout, servers: int, optimizer: Optimizer, mode: UpdateMode = _ASYNC
) -> tuple[ShardLayout, ...]:
    """Cut a model into parts, which are empty where it has fewer pieces than servers.

    Args:
        model: its layout.
        servers: how many parts, at least 1.
        optimizer: decides where may be cut.
        mode: when there is an update.

    Raises:
        LayoutError: a variable without a gradient travels before one that has one.
        OptimizerUnsupported: parts cannot be updated apart from each other.
    """
    kinds = [variable.trainable for variable in model.variables]
    if kinds != sorted(kinds, reverse=True):
        raise LayoutError("with parameter servers, trainable variables must travel first")
    if sums_between(model, servers, optimizer, mode):
        _check_clipping(model, optimizer, mode)
    apart = isinstance(optimizer.clipping, ClipNorm)
    cuts = [0]
    for number in range(1, servers):
        wanted = model.parameter_nbytes * number // servers
        cuts.append(max(cuts[-1], _nearest(model, wanted, apart=apart)))
    cuts.append(model.parameter_nbytes)
    return tuple(ShardLayout(*ends, _pieces(model, *ends)) for ends in pairwise(cuts))


def whole(model: Layout) -> ShardLayout:
    """The shard of a master without parameter servers."""
    return ShardLayout(0, model.parameter_nbytes, model)


NOTHING = ShardLayout(0, 0, Layout(()))
"""What the master has if others serve."""


def for_part(optimizer: Optimizer, layout: Layout) -> Optimizer:
    """The optimizer for a part, which knows no variables but its own."""
    names = {v.name for v in layout.variables} | {t.name for t in layout.tables}
    return replace(optimizer, undecayed=optimizer.undecayed & names)


def recut(
    saved: Sequence[Snapshot],
    model: Layout,
    part: ShardLayout,
    optimizer: Optimizer,
    mine: Mine | None = None,
) -> Snapshot:
    """The snapshot of a part, from those of a model that was cut in whatever way.

    Args:
        saved: the parts that were kept at one moment, in their order; one, if the master served.
        model: the layout of the whole.
        part: what is wanted.
        optimizer: that they were made with.
        mine: which rows are of the part; None: all.

    Raises:
        ValueError: rows do not fit.
    """
    arrays: dict[str, Stored] = {}
    for name in dict.fromkeys(name for one in saved for name in one.arrays):
        *_, kind, dtype = name.split("/")
        if kind in ("trainable", "state"):
            key = ArenaKey(kind == "trainable", dtype)
            if size := part.layout.sizes.get(key, 0):
                start = _elements_before(model, part.start, key)
                found = [one.arrays[name] for one in saved if name in one.arrays]
                arrays[name] = _stretch([np.asarray(a) for a in found], start, start + size)
    depth = 1 + sum(slot.used for slot in optimizer.rule.slots())
    for number, table in enumerate(part.layout.tables):
        arrays |= _rows(saved, f"tables/{number}/rows/", table.dim * depth, mine)
        arrays |= _accumulated_rows(saved, f"accumulated/tables/{number}", mine)
        name = f"tables/{number}/admission"
        if sketches := [np.asarray(one.arrays[name]) for one in saved if name in one.arrays]:
            # No id counts less than before: it has counted with one of them.
            arrays[name] = np.maximum.reduce(sketches)
    described = {
        "layout": part.layout.describe(),
        "tables": [_table(saved, number) for number in range(len(part.layout.tables))],
    }
    return Snapshot({**saved[0].meta, **described}, arrays)


# --- where to cut --------------------------------------------------------------------------


def _check_clipping(model: Layout, optimizer: Optimizer, mode: UpdateMode) -> None:
    """What is clipped must be one worker's gradient: its parts travel with their sums."""
    if isinstance(mode, Sync) and mode.grads_to_wait > 1:
        problem = "set, with several parameter servers and updates of several gradients together"
        remedy = "use clipvalue, --parameter-servers 1, or --update async"
    elif any(table.min_count > 1 for table in model.tables):
        # Which rows are there to be updated is known when they are.
        problem = "set, with several parameter servers and rows admitted by their frequency"
        remedy = "use clipvalue, --parameter-servers 1, or leave min_count out"
    else:
        return
    option = "clipnorm" if isinstance(optimizer.clipping, ClipNorm) else "global_clipnorm"
    raise OptimizerUnsupported(f"{optimizer.name}.{option}", problem, remedy)


def _nearest(model: Layout, wanted: int, *, apart: bool) -> int:
    """The byte nearest to the one wanted between two elements, or between two variables."""
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
            yield Variable(variable.name, (size,), variable.dtype, variable.trainable)
        at += variable.nbytes


def _elements_before(model: Layout, start: int, key: ArenaKey) -> int:
    """Elements of an arena that travel before a byte of the payload."""
    at = found = 0
    for variable in model.variables:
        if (variable.trainable, variable.dtype) == (key.trainable, key.dtype):
            found += min(max(start - at, 0), variable.nbytes) // variable.itemsize
        at += variable.nbytes
    return found


# --- snapshots -----------------------------------------------------------------------------


def _stretch(arrays: Sequence[Array], start: int, stop: int) -> Array:
    """Elements of arrays that lie one after the other."""
    pieces, at = [], 0
    for array in arrays:
        pieces.append(array[max(start - at, 0) : max(stop - at, 0)])
        at += array.size
    if at < stop:
        raise ValueError(f"an arena has {at} elements, not {stop}")
    kept = [piece for piece in pieces if piece.size]
    return kept[0] if len(kept) == 1 else np.concatenate(kept)


def _rows(
    saved: Sequence[Snapshot], prefix: str, width: int, mine: Mine | None
) -> dict[str, Stored]:
    found: dict[str, Stored] = {}
    for one in saved:
        for name, packed in one.arrays.items():
            if name.startswith(prefix):
                if mine is not None:
                    ids, used, rows = unpack(np.asarray(packed), width)
                    keep = mine(ids)
                    packed = pack(ids[keep], used[keep], rows[keep])
                found[f"{prefix}{len(found)}"] = packed
    return found


def _accumulated_rows(saved: Sequence[Snapshot], name: str, mine: Mine | None) -> dict[str, Array]:
    holders = [one.arrays for one in saved if f"{name}/ids" in one.arrays]
    if not holders:
        return {}
    ids = np.concatenate([np.asarray(arrays[f"{name}/ids"]) for arrays in holders])
    values = np.concatenate([np.asarray(arrays[f"{name}/values"]) for arrays in holders])
    keep = np.ones(ids.size, bool) if mine is None else mine(ids)
    return {f"{name}/ids": ids[keep], f"{name}/values": values[keep]}


def _table(saved: Sequence[Snapshot], number: int) -> dict[str, Any]:
    """What is known of a table besides rows: of all parts the latest moment."""
    all_ = [one.meta["tables"][number] for one in saved]
    latest = {name: max(one[name] for one in all_) for name in ("now", "added")}
    return {**all_[0], **latest, "swept": 0}
