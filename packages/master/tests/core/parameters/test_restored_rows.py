"""Rows of a checkpoint, as a parameter server restores its own of them."""

from __future__ import annotations

import numpy as np

from edl_master.core.parameters.layout import Array, Layout, Variable
from edl_master.core.parameters.modes import Async
from edl_master.core.parameters.shard_layout import reshard, shard_layouts
from edl_master.core.parameters.store import ParameterStore
from edl_master.core.parameters.table_spec import Distribution, Initial, TableSpec

from .planes import ParameterPlane, row_payload, sgd
from .sharded_plane import owner

TABLE = TableSpec("rows", 3, Initial(Distribution.CONSTANT, 0.0, 0.0), 1)


def test_rows_of_a_checkpoint_are_divided_chunk_by_chunk_as_they_are_restored() -> None:
    """A server never has more of a checkpoint in memory than its own rows and one chunk."""
    model = Layout((Variable("w", (4,), "float32", True),), (TABLE,))
    saved = ParameterPlane(model, sgd(), Async()).store
    saved.put_rows(row_payload(np.arange(100), np.ones((100, 3))))
    asked: list[int] = []

    def is_owned(ids: Array) -> Array:
        asked.append(ids.size)
        return owner(0, 2)(ids)

    (part, _) = shard_layouts(model, 2, sgd())
    mine = reshard([saved.snapshot()], model, part, sgd(), is_owned)
    assert not asked
    store = ParameterStore.restore(mine, sgd(), Async())
    assert asked == [100]
    assert store.tables().rows[TABLE.name] == owner(0, 2)(np.arange(100)).sum()
