"""Compiles the loops of tables before the first push, by running each on one row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edl_master.core.parameters.arithmetic import read_only
from edl_master.core.parameters.layout import Layout
from edl_master.core.parameters.optimizers import Optimizer
from edl_master.core.parameters.table_spec import TableSpec
from edl_master.core.parameters.tables.accumulated_rows import merge
from edl_master.core.parameters.tables.index import first_repeated
from edl_master.core.parameters.tables.joint_tables import JointTables
from edl_master.core.parameters.tables.table import RowGradient, Table
from edl_master.core.parameters.updater import Updater


def warm_up(spec: TableSpec, optimizer: Optimizer) -> None:
    """Compile the loops that any table needs under this optimizer."""
    spec = replace(spec, name="warm-up", dim=1, min_count=1, max_age=1)
    slots = optimizer.row_slots
    updater = Updater(replace(optimizer, undecayed=frozenset(), ema=None), Layout([], [spec]), None)
    table = Table(spec, slots)
    ids = read_only(np.zeros(1, np.int64))
    gradient = RowGradient(ids, read_only(np.zeros((1, 1), np.float32)))

    joint, bounds = JointTables([table]), np.array([0, 1])

    def update(once: RowGradient) -> None:
        updater.apply({}, {}, rows=[joint.resolve(once.ids, bounds, once.values)])

    update(merge([gradient, gradient]))
    first_repeated(ids, bounds)
    table.put(ids, gradient.values)
    view = table.take_view()
    update(gradient)  # copies the block that the view shares
    joint.read(ids, bounds, np.empty((1, 1), np.float32), [view])
    view.collect(0, 1, 1)
    del view
    for other in (1, 2, 3):  # by now the row is too old
        update(RowGradient(read_only(np.full(1, other, np.int64)), gradient.values))
    many = read_only(np.arange(1 << 14))  # more than the buckets have room for
    table.put(many, read_only(np.zeros((many.size, 1), np.float32)))
    choosy = JointTables([Table(replace(spec, min_count=2), slots)])
    choosy.resolve(ids, bounds, gradient.values)
