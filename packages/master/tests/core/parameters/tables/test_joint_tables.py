"""Tables of one width that are read and updated in one pass are as if each were alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edl_master.core.parameters.layout import Array
from edl_master.core.parameters.payload import PayloadError
from edl_master.core.parameters.table_spec import Distribution, Initial, TableSpec
from edl_master.core.parameters.tables.joint_tables import JointTables
from edl_master.core.parameters.tables.table import Table

DIM = 3
SLOTS = (0.5,)
some_ids = st.lists(st.integers(-20, 20), max_size=12, unique=True)
kinds = st.builds(
    dict,
    distribution=st.sampled_from(Distribution),
    min_count=st.integers(1, 2),
    max_age=st.sampled_from((0, 1, 4)),
)


def tables_of(chosen: list[dict[str, int]]) -> list[Table]:
    return [
        Table(
            TableSpec(
                f"t{number}",
                DIM,
                Initial(Distribution(one["distribution"]), 0.5, 1.0),
                number,
                one["min_count"],
                one["max_age"],
            ),
            SLOTS,
        )
        for number, one in enumerate(chosen)
    ]


def subtract(values: Array, gradient: Array, slots: list[Array]) -> None:
    values -= gradient
    slots[0] += gradient


def push(tables: list[Table], ids: list[Array], values: Array) -> None:
    joint, bounds = JointTables(tables), np.cumsum([0, *(part.size for part in ids)])
    joint.apply(joint.resolve(np.concatenate(ids), bounds, values), subtract)


def read(tables: list[Table], ids: list[Array], views: Any = None) -> Array:
    bounds = np.cumsum([0, *(part.size for part in ids)])
    out = np.full((bounds[-1], DIM), np.nan, np.float32)
    JointTables(tables).read(np.concatenate(ids), bounds, out, views)
    return out


@settings(max_examples=60, deadline=None)
@given(st.data(), st.lists(kinds, min_size=1, max_size=4), st.integers(0, 8))
def test_joint_tables_are_as_each_alone(
    data: st.DataObject, chosen: list[dict[str, int]], pushes: int
) -> None:
    together, alone = tables_of(chosen), tables_of(chosen)
    everything = [np.arange(-21, 22)] * len(chosen)
    views = None
    for step in range(pushes):
        ids = [np.array(data.draw(some_ids), np.int64) for _ in chosen]
        values = np.random.default_rng(step).normal(size=(sum(i.size for i in ids), DIM))
        values = values.astype(np.float32)
        if data.draw(st.booleans()):
            views = [[table.take_view() for table in tables] for tables in (together, alone)]
        push(together, ids, values)
        at = 0
        for table, part in zip(alone, ids, strict=True):
            push([table], [part], values[at : at + part.size])
            at += part.size
    separate = [read([table], [some]) for table, some in zip(alone, everything, strict=True)]
    np.testing.assert_array_equal(read(together, everything), np.concatenate(separate))
    assert [len(table) for table in together] == [len(table) for table in alone]
    if views is not None:
        separate = [
            read([table], [some], [view])
            for table, some, view in zip(alone, everything, views[1], strict=True)
        ]
        found = read(together, everything, views[0])
        np.testing.assert_array_equal(found, np.concatenate(separate))


def test_a_table_in_which_an_id_appears_twice_is_named() -> None:
    tables = tables_of([{"distribution": 0, "min_count": 1, "max_age": 0}] * 3)
    ids = np.array([1, 2, 1, 5, 5, 1])
    with pytest.raises(PayloadError, match="'t1'"):
        JointTables(tables).resolve(ids, np.array([0, 2, 5, 6]), np.zeros((6, DIM), np.float32))
