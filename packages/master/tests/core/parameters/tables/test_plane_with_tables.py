"""Tables in the plane: one push, one step; sync as one big batch; frozen, saved and restored."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edl_master.core.identifiers import Token
from edl_master.core.parameters.keras_config import OptimizerUnsupported
from edl_master.core.parameters.layout import Layout, LayoutError, Variable
from edl_master.core.parameters.modes import Async, Reduction, Sync, UpdateMode
from edl_master.core.parameters.optimizers import parse_optimizer
from edl_master.core.parameters.payload import PayloadError
from edl_master.core.parameters.push import PushOutcome
from edl_master.core.parameters.snapshot import Snapshot, SnapshotError
from edl_master.core.parameters.table_spec import Distribution, Initial, TableSpec
from edl_master.core.parameters.tables.payloads import RowIds, RowPayload

from ..planes import (
    A,
    B,
    ParameterPlane,
    push,
    row_ids,
    row_payload,
    rows_of,
    sgd,
    small_plane,
    values_of,
    zero_table,
)

NOTHING = np.zeros(2, np.float32)
DRAWN = TableSpec("drawn", 3, Initial(Distribution.NORMAL, 0.0, 1.0), 5)


def plane_with(*tables: TableSpec, mode: UpdateMode | None = None, optimizer: Any = None) -> Any:
    plane = small_plane(mode or Async(), optimizer, state=0, tables=tables)
    plane.grant(A, Token(1))
    plane.grant(B, Token(2))
    return plane


def reload(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot as it comes back from a disk."""
    arrays: Any = {name: np.array(np.asarray(array)) for name, array in snapshot.arrays.items()}
    return Snapshot(json.loads(json.dumps(snapshot.meta)), arrays)


def test_a_push_changes_weights_and_all_tables_in_one_step_and_once() -> None:
    plane = plane_with(zero_table("a"), zero_table("b", 2))
    rows = (row_payload([7, -1], [[1], [2]]), row_payload([7], [[3, 4]], table=1))
    for expected in (PushOutcome.APPLIED, PushOutcome.ALREADY_APPLIED):
        assert push(plane, A, 1, 0, [1, 1], rows=rows).outcome is expected
        np.testing.assert_array_equal(values_of(plane), [-1, -1])
        np.testing.assert_array_equal(rows_of(plane, [7, -1, 0]), [[-1], [-2], [0]])
        np.testing.assert_array_equal(rows_of(plane, [7], table=1), [[-3, -4]])
    assert plane.store.tables().rows == {"a": 2, "b": 1}


@pytest.mark.parametrize(
    "bad",
    [
        (row_payload([1, 1], [[1], [1]]),),
        (row_payload([1], [[1], [1]]),),
        (row_payload([1], [[1]]), row_payload([2], [[1]])),
        (row_payload([1], [[1]], table=9),),
        (RowPayload((0,), (1,), b"1234567", bytes(4)),),
        (row_payload([5], [[1]]), row_payload([3, 3], [[1], [1]], table=1)),
    ],
    ids=["id twice", "sizes", "table twice", "no such table", "cut ids", "the second table"],
)
def test_a_push_with_bad_rows_changes_nothing(bad: tuple[RowPayload, ...]) -> None:
    plane = plane_with(zero_table("a"), zero_table("b"))
    with pytest.raises(PayloadError):
        push(plane, A, 1, 0, [1, 1], rows=bad)
    np.testing.assert_array_equal(values_of(plane), NOTHING)
    np.testing.assert_array_equal(rows_of(plane, [1, 2, 3, 5]), np.zeros((4, 1)))
    assert plane.applied_counts()[A] == 0
    assert (
        push(plane, A, 1, 0, [1, 1], rows=(row_payload([5], [[1]]),)).outcome is PushOutcome.APPLIED
    )


def test_rows_that_are_not_finite_are_refused_by_name() -> None:
    plane = plane_with(zero_table("clicks"))
    result = push(plane, A, 1, 0, [1, 1], rows=(row_payload([3], [[np.nan]]),))
    assert (result.outcome, result.detail) == (PushOutcome.INVALID, "clicks")
    np.testing.assert_array_equal(values_of(plane), NOTHING)


@pytest.mark.parametrize("reduction", list(Reduction))
def test_a_synchronous_update_is_that_of_one_big_batch(reduction: Reduction) -> None:
    adam = parse_optimizer({"class_name": "Adam", "config": {"learning_rate": 0.1}})
    plane = plane_with(DRAWN, mode=Sync(2, reduction), optimizer=adam)
    whole = plane_with(DRAWN, optimizer=adam)
    one = row_payload([1, 2], [[1, 2, 3], [4, 5, 6]])
    other = row_payload([2, 9], [[1, 1, 1], [2, 2, 2]])
    before = rows_of(plane, [1, 2, 9])
    push(plane, A, 1, 0, [1, 0], records=3, rows=(one,))
    np.testing.assert_array_equal(rows_of(plane, [1, 2, 9]), before)
    weights = (0.75, 0.25) if reduction is Reduction.MEAN else (1.0, 1.0)
    both = weights[0] * np.array([[1, 2, 3], [4, 5, 6], [0, 0, 0]])
    both += weights[1] * np.array([[0, 0, 0], [1, 1, 1], [2, 2, 2]])

    restored = ParameterPlane.restore(reload(plane.snapshot()), adam, plane.mode)
    for each in (plane, restored):
        assert push(each, B, 2, 0, [0, 1], records=1, rows=(other,)).new_version
    push(whole, A, 1, 0, [weights[0], weights[1]], rows=(row_payload([1, 2, 9], both),))
    for each in (plane, restored):
        np.testing.assert_allclose(
            rows_of(each, [1, 2, 9]), rows_of(whole, [1, 2, 9]), rtol=1e-6, atol=1e-6
        )


def test_a_frozen_version_keeps_its_rows() -> None:
    plane = plane_with(DRAWN)
    push(plane, A, 1, 0, NOTHING, rows=(row_payload([1], [[1, 1, 1]]),))
    plane.freeze("then")
    then = rows_of(plane, [1, 2])
    push(plane, A, 1, 1, NOTHING, rows=(row_payload([1, 2], np.ones((2, 3))),))
    np.testing.assert_array_equal(rows_of(plane, [1, 2], frozen="then"), then)
    np.testing.assert_allclose(rows_of(plane, [1, 2]), then - 1)
    with pytest.raises(KeyError):
        rows_of(plane, [1], frozen="never")


def test_scanning_finds_every_row_of_a_frozen_version_once() -> None:
    plane = plane_with(zero_table(dim=2))
    ids = np.arange(1000) * 7 - 3000
    push(plane, A, 1, 0, NOTHING, rows=(row_payload(ids, np.stack([ids, -ids], 1)),))
    plane.freeze("then")
    push(plane, A, 1, 1, NOTHING, rows=(row_payload([1 << 40], [[1, 1]]),))
    found: dict[int, list[float]] = {}
    start: int | None = 0
    while start is not None:
        scanned = plane.scan_rows("then", 0, start, 333)
        assert scanned.ids.size <= 333
        found |= dict(zip(scanned.ids.tolist(), scanned.rows.tolist(), strict=True))
        start = scanned.next
    assert found == {i: [-i, i] for i in ids.tolist()}


def test_initial_rows_are_taken_before_the_values_and_never_after() -> None:
    plane = ParameterPlane(Layout([Variable("w", (1,), "float32", True)], [DRAWN]), sgd(), Async())
    assert plane.put_rows(row_payload([4, -4], np.ones((2, 3))))
    with pytest.raises(PayloadError, match="twice"):
        plane.put_rows(row_payload([4, 4], np.ones((2, 3))))
    plane.initialize(bytes(4))
    assert not plane.put_rows(row_payload([4], np.zeros((1, 3))))
    np.testing.assert_array_equal(rows_of(plane, [4, -4]), np.ones((2, 3)))
    plane.grant(A, Token(1))
    rows = (row_payload([4, 5], np.ones((2, 3))),)
    assert push(plane, A, 1, 0, [0], rows=rows).outcome is PushOutcome.APPLIED
    np.testing.assert_array_equal(rows_of(plane, [4]), np.zeros((1, 3)))


@pytest.mark.parametrize("name", ["SGD", "Adam", "Ftrl"])
def test_training_goes_on_after_a_restore_as_if_there_had_been_none(name: str) -> None:
    optimizer = parse_optimizer({"class_name": name, "config": {"learning_rate": 0.1}})
    tables = DRAWN, TableSpec("choosy", 1, Initial(Distribution.CONSTANT, 1.0), 3, 2, 50)
    plane = plane_with(*tables, optimizer=optimizer)
    rng = np.random.default_rng(1)

    def train(one: ParameterPlane, minibatch: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        ids = np.unique(rng.integers(-20, 20, 30))
        rows = (
            row_payload(ids, rng.normal(size=(ids.size, 3))),
            row_payload(ids, rng.normal(size=(ids.size, 1)), table=1),
        )
        assert (
            push(one, A, 1, minibatch, rng.normal(size=2), rows=rows).outcome is PushOutcome.APPLIED
        )

    for minibatch in range(5):
        train(plane, minibatch, int(rng.integers(1000)))
    snapshot = plane.snapshot()
    train(plane, 5, 77)  # what is in the snapshot does not move
    restored = ParameterPlane.restore(reload(snapshot), optimizer, plane.mode, layout=plane.layout)
    train(restored, 5, 77)
    for one in (plane, restored):
        train(one, 6, 78)
    everything = list(range(-25, 25))
    for table in (0, 1):
        np.testing.assert_array_equal(
            rows_of(plane, everything, table), rows_of(restored, everything, table)
        )
    np.testing.assert_array_equal(values_of(plane), values_of(restored))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_one_payload_of_many_tables_is_like_one_of_each(
    data: st.DataObject,
) -> None:
    """Whatever their widths and order, and also if some tables have no rows in it."""
    widths = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=5))
    tables = [
        TableSpec(f"t{n}", dim, Initial(Distribution.UNIFORM, 0.0, 1.0), n)
        for n, dim in enumerate(widths)
    ]
    order = data.draw(st.permutations(range(len(widths))))
    one, many = plane_with(*tables), plane_with(*tables)
    payloads = []
    for number in order:
        ids = sorted(data.draw(st.sets(st.integers(-5, 5), max_size=4)))
        values = np.arange(len(ids) * widths[number]).reshape(len(ids), widths[number]) + number
        payloads.append(row_payload(ids, values, number))
    push(one, A, 1, 0, [0, 0], rows=tuple(payloads))
    for minibatch, payload in enumerate(payloads):
        push(many, A, 1, minibatch, [0, 0], rows=(payload,))
    every = np.arange(-6, 7)
    wanted = RowIds(tuple(order), (every.size,) * len(order), np.tile(every, len(order)))
    out = bytearray(one.rows_nbytes(wanted))
    one.read_rows(wanted, memoryview(out))
    expected = [rows_of(many, every, number) for number in order]
    assert bytes(out) == b"".join(rows.tobytes() for rows in expected)


def test_a_snapshot_of_other_tables_is_refused() -> None:
    snapshot = reload(plane_with(zero_table("a")).snapshot())
    for tables, problem in (
        ([zero_table("b")], "'a' in one and 'b'"),
        ([zero_table("a", 2)], "dim"),
        ([], "1 embedding tables in one and 0"),
    ):
        layout = Layout([Variable("w", (2,), "float32", True)], tables)
        with pytest.raises(SnapshotError, match=problem):
            ParameterPlane.restore(snapshot, sgd(), Async(), layout=layout)


def test_a_layout_knows_its_tables() -> None:
    weight = Variable("w", (2,), "float32", True)
    assert Layout([weight]).fingerprint != Layout([weight], [DRAWN]).fingerprint
    layout = Layout([weight], [DRAWN])
    again = Layout.from_description(layout.describe(), layout.describe_tables())
    assert again == layout
    assert again.fingerprint == layout.fingerprint
    with pytest.raises(LayoutError, match="drawn"):
        Layout([weight], [DRAWN, DRAWN])


def test_an_average_of_rows_is_refused_before_anything_is_trained() -> None:
    ema = parse_optimizer({"class_name": "SGD", "config": {"use_ema": True}})
    with pytest.raises(OptimizerUnsupported, match="embedding tables"):
        ParameterPlane(Layout([Variable("w", (1,), "float32", True)], [DRAWN]), ema, Async())


def test_a_buffer_of_another_size_is_refused() -> None:
    plane = plane_with(DRAWN)
    with pytest.raises(PayloadError, match="24 bytes, not 8"):
        plane.read_rows(row_ids(np.arange(2)), memoryview(bytearray(8)))
