"""Tables against a dictionary of rows, for whatever is done to them in whatever order."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edl_master.core.parameters.layout import Array
from edl_master.core.parameters.layout_error import LayoutError
from edl_master.core.parameters.payload import PayloadError
from edl_master.core.parameters.table_spec import Distribution, Initial, TableSpec
from edl_master.core.parameters.tables import row_chunks
from edl_master.core.parameters.tables.index import BUCKETS, NOT_THERE, RowIndex, first_repeated
from edl_master.core.parameters.tables.joint_tables import JointTables
from edl_master.core.parameters.tables.table import Table

SMALLEST, MAX_ID = -(2**63), 2**63 - 1
ZEROS = Initial(Distribution.CONSTANT)
DRAWN = Initial(Distribution.UNIFORM, 0.0, 0.05)

any_ids = st.lists(
    st.one_of(
        st.sampled_from([0, 1, -1, SMALLEST, MAX_ID]),
        st.integers(0, 40),
        st.integers(SMALLEST, MAX_ID),
    ),
    max_size=60,
    unique=True,
)


def spec(dim: int = 2, initial: Initial = ZEROS, **limits: Any) -> TableSpec:
    return TableSpec("t", dim, initial, 11, **limits)


def ids_of(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


def rows_of(table: Table, ids: Array, view: Any = None) -> Array:
    out = np.full((ids.size, table.spec.dim), np.nan, np.float32)
    bounds = np.array([0, ids.size])
    JointTables([table]).read(ids, bounds, out, None if view is None else [view])
    return out


def subtract(values: Array, gradient: Array, slots: list[Array]) -> None:
    values -= gradient
    for slot in slots:
        slot += gradient


def push(table: Table, ids: Array, gradient: Any, executor: Any = None) -> None:
    full = np.broadcast_to(np.asarray(gradient, np.float32), (ids.size, table.spec.dim))
    joint, bounds = JointTables([table]), np.array([0, ids.size])
    joint.apply(joint.resolve(ids, bounds, np.ascontiguousarray(full)), subtract, executor)


# --- the index -----------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), any_ids), max_size=12))
def test_the_index_is_a_dictionary(steps: list[tuple[bool, list[int]]]) -> None:
    index, model, fresh = RowIndex(), dict[int, int](), 0
    for adds, numbers in steps:
        ids = ids_of(*numbers)
        if adds:
            rows, missing = index.find(ids)
            new = np.arange(fresh, fresh + missing, dtype=np.int32)
            assert index.insert(ids, rows, new) == missing
            fresh += missing
            model |= dict(zip(numbers, rows.tolist(), strict=True))
        else:
            index.remove(ids)
            for number in numbers:
                model.pop(number, None)
        seen = ids_of(*{*numbers, *model, 3, -3})
        found, _ = index.find(seen)
        assert found.tolist() == [model.get(number, NOT_THERE) for number in seen.tolist()]
        assert len(index) == len(model)


def test_the_index_grows_bucket_by_bucket_and_forgets_without_losing_others() -> None:
    index = RowIndex()
    ids = np.arange(100_000, dtype=np.int64) * 4096
    rows, missing = index.find(ids)
    assert missing == ids.size
    index.insert(ids, rows, np.arange(ids.size, dtype=np.int32))
    index.remove(ids[::3])
    found, missing = index.find(ids)
    expected = np.arange(ids.size)
    expected[::3] = NOT_THERE
    np.testing.assert_array_equal(found, expected)
    assert missing == ids[::3].size
    assert index.nbytes < 100_000 * 12 * 6 + BUCKETS * 96


# --- rows ----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(any_ids, st.integers(-3, 3)), max_size=10), st.booleans())
def test_a_table_is_a_dictionary_of_rows(steps: list[tuple[list[int], int]], drawn: bool) -> None:
    """Rows, slots, and what was view at every moment."""
    table = Table(spec(initial=DRAWN if drawn else ZEROS), (0.5,))
    model: dict[int, Array] = {}
    kept = []
    for numbers, amount in steps:
        ids = ids_of(*numbers)
        kept.append((table.take_view(), dict(model)))
        start = dict(zip(numbers, rows_of(table, ids), strict=True))
        push(table, ids, amount)
        model |= {n: model.get(n, start[n]) - np.float32(amount) for n in numbers}
    everything = ids_of(*model)
    for n, row in zip(model, rows_of(table, everything), strict=True):
        np.testing.assert_array_equal(row, model[n])
    assert len(table) == len(model)
    for view, then in kept:
        untouched = rows_of(Table(table.spec, ()), everything)
        for n, row, initial in zip(model, rows_of(table, everything, view), untouched, strict=True):
            np.testing.assert_array_equal(row, then.get(n, initial))


def test_a_row_is_the_same_whatever_the_order_or_the_server() -> None:
    ids = ids_of(5, -1, 0, SMALLEST, MAX_ID, 123456789)
    for distribution in Distribution:
        one = Table(spec(7, Initial(distribution, 0.25, 2.0)), ())
        other = Table(spec(7, Initial(distribution, 0.25, 2.0)), ())
        expected = rows_of(one, ids)
        push(one, ids, 0)
        for i in reversed(range(ids.size)):
            push(other, ids[i : i + 1], 0)
        np.testing.assert_array_equal(rows_of(one, ids), expected)
        np.testing.assert_array_equal(rows_of(other, ids), expected)


def test_other_seeds_and_ids_give_other_rows() -> None:
    ids = np.arange(1000, dtype=np.int64)
    one = rows_of(Table(TableSpec("t", 3, DRAWN, 1), ()), ids)
    other = rows_of(Table(TableSpec("t", 3, DRAWN, 2), ()), ids)
    assert np.unique(one).size > 2990
    assert not (one == other).any()


@pytest.mark.parametrize(
    ("distribution", "mean", "deviation", "low", "high"),
    [
        (Distribution.UNIFORM, 0.0, 1 / np.sqrt(3), -1.0, 1.0),
        (Distribution.NORMAL, 0.0, 1.0, -6.0, 6.0),
        (Distribution.TRUNCATED_NORMAL, 0.0, 0.8796256610342398, -2.0, 2.0),
    ],
)
def test_distributions(
    distribution: Distribution, mean: float, deviation: float, low: float, high: float
) -> None:
    table = Table(spec(100, Initial(distribution, 0.0, 1.0)), ())
    rows = rows_of(table, np.arange(10_000, dtype=np.int64))
    assert abs(rows.mean() - mean) < 0.005
    assert abs(rows.std() - deviation) < 0.005
    assert low <= rows.min() < rows.max() <= high
    assert np.abs(np.corrcoef(rows[:, 0], rows[:, 1])[0, 1]) < 0.05


def test_an_id_twice_in_a_gradient_is_refused_and_changes_nothing() -> None:
    table = Table(spec(), ())
    push(table, ids_of(1), 1)
    for ids in (ids_of(1, 2, 1), ids_of(7, 7)):
        values = np.ones((ids.size, 2), np.float32)
        with pytest.raises(PayloadError, match="twice"):
            JointTables([table]).resolve(ids, np.array([0, ids.size]), values)
    np.testing.assert_array_equal(rows_of(table, ids_of(1, 2, 7)), [[-1, -1], [0, 0], [0, 0]])


# --- bounded memory ------------------------------------------------------------------------


def test_rare_ids_get_no_row_until_they_have_come_often_enough() -> None:
    table = Table(spec(min_count=3), ())
    for times, row in ((1, 0), (2, 0), (3, -1), (4, -2)):
        push(table, ids_of(9), 1)
        assert rows_of(table, ids_of(9)).tolist() == [[row, row]], times
    assert len(table) == 1


def test_admission_needs_no_memory_for_ids_that_never_come_again() -> None:
    table = Table(spec(min_count=2), ())
    before = table.nbytes
    for start in range(0, 200_000, 20_000):
        push(table, np.arange(start, start + 20_000, dtype=np.int64), 1)
    assert len(table) < 200
    assert table.nbytes <= before + (1 << 20)


def test_rows_that_are_not_used_are_dropped_and_begin_anew() -> None:
    table = Table(spec(max_age=10), ())
    push(table, ids_of(1), 5)
    for _ in range(20):
        push(table, ids_of(2), 1)
    np.testing.assert_array_equal(rows_of(table, ids_of(1, 2)), [[0, 0], [-20, -20]])
    assert len(table) == 1
    push(table, ids_of(3), 1)
    push(table, ids_of(1), 1)
    np.testing.assert_array_equal(rows_of(table, ids_of(1, 3)), [[-1, -1], [-1, -1]])


def test_with_an_age_memory_stays_bounded_whatever_comes() -> None:
    table = Table(spec(max_age=8), ())
    sizes = []
    for start in range(0, 400_000, 4_000):
        push(table, np.arange(start, start + 4_000, dtype=np.int64), 1)
        sizes.append(len(table))
    assert max(sizes) <= 4_000 * (8 + 8)
    assert table.nbytes < 30 << 20


def test_a_view_keeps_its_rows_when_rows_are_dropped_and_reused() -> None:
    table = Table(spec(max_age=1), ())
    push(table, ids_of(1), 1)
    for _ in range(3):
        push(table, ids_of(2), 1)  # now the row of 1 is free
    assert len(table) == 1
    view = table.take_view()
    for other in (3, 4, 5):
        push(table, ids_of(other), 7)
    np.testing.assert_array_equal(rows_of(table, ids_of(1, 2, 3), view), [[0, 0], [-3, -3], [0, 0]])


# --- saving --------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(any_ids, any_ids)
def test_parts_restore_rows_slots_and_ages(first: list[int], second: list[int]) -> None:
    table = Table(spec(initial=DRAWN, max_age=100), (0.5, 0.25))
    push(table, ids_of(*first), 1)
    parts = [np.asarray(part) for part in row_chunks.chunks(table.take_view())]
    state = table.describe()
    copy = Table(table.spec, (0.5, 0.25))
    for part in parts:
        ids, used, rows = row_chunks.unpack(part, copy.width)
        copy.put(ids, rows, used)
    copy.restore(state, None)
    for one in (table, copy):
        push(one, ids_of(*second), 2)
    everything = ids_of(*{*first, *second})
    np.testing.assert_array_equal(rows_of(table, everything), rows_of(copy, everything))
    saved = [row_chunks.chunks(each.take_view()) for each in (table, copy)]
    again = [np.concatenate([np.asarray(chunk) for chunk in one] or [[]]) for one in saved]
    assert sorted(again[0].tolist()) == sorted(again[1].tolist())


def test_a_part_is_as_the_rows_were_when_it_was_taken() -> None:
    table = Table(spec(), ())
    push(table, ids_of(1, 2), 1)
    taken = row_chunks.chunks(table.take_view())
    push(table, ids_of(1, 2, 3), 1)
    ids, _, rows = row_chunks.unpack(np.asarray(taken[0]), table.width)
    assert ids.tolist() == [1, 2]
    np.testing.assert_array_equal(rows, -np.ones((2, 2)))


@pytest.mark.parametrize(
    "wrong", [{"dim": 0}, {"dim": 1 << 20}, {"min_count": 0}, {"max_age": -1}, {"seed": -1}]
)
def test_senseless_tables_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(LayoutError, match=next(iter(wrong))):
        TableSpec(**{"name": "t", "dim": 2, "initial": ZEROS, "seed": 1, **wrong})


def test_many_rows_are_updated_in_parts_by_several_threads() -> None:
    dim, n = 64, 40_000  # of 256 bytes, with a slot twice that: 20 MB
    ids = np.random.default_rng(1).permutation(n) * 7 - 1000
    gradient = np.random.default_rng(2).normal(size=(n, dim)).astype(np.float32)
    tables = []
    with ThreadPoolExecutor(2) as pool:
        for executor in (None, pool):
            table = Table(spec(dim), (0.5,))
            for _ in range(2):
                push(table, ids, gradient, executor)
            tables.append(rows_of(table, ids))
    np.testing.assert_array_equal(tables[0], -gradient - gradient)
    np.testing.assert_array_equal(tables[1], tables[0])


@given(ids=any_ids, again=st.sets(st.integers(0, 59)), at=st.integers(0, 60))
def test_a_repeated_id_is_found(ids: list[int], again: set[int], at: int) -> None:
    def repeats(*tables: list[int]) -> int:
        bounds = np.cumsum([0, *map(len, tables)])
        return first_repeated(np.array([*chain(*tables)], np.int64), bounds)

    assert repeats(ids, ids[:at], ids[at:], ids) == -1
    once_more = [ids[number] for number in again if number < len(ids)]
    repeated = ids[:at] + once_more + ids[at:]
    assert repeats(ids, [], repeated, repeated) == (2 if once_more else -1)
