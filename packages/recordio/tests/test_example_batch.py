"""Many records at once are decoded as they are one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_example import features_of

from recordio import example, example_batch
from recordio.errors import RecordError


def one_by_one(records: list[bytes]) -> list[dict[str, Any]]:
    return [example.decode(record) for record in records]


def at_once(records: list[bytes]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{} for _ in records]
    seen = []
    for group in example_batch.decode(records):
        for row, position in enumerate(group.positions.tolist()):
            seen.append(position)
            found[position] = {name: values[row] for name, values in group.features.items()}
    assert sorted(seen) == list(range(len(records)))
    return found


def assert_equal(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert one.keys() == other.keys()
        for name, value in one.items():
            if isinstance(other[name], list):
                assert value == other[name]
            else:
                assert value.dtype == other[name].dtype
                np.testing.assert_array_equal(value, other[name])


@settings(deadline=None)
@given(st.lists(features_of, max_size=4), st.data())
def test_any_records(kinds: list[dict[str, Any]], data: Any) -> None:
    encoded = [example.encode(features) for features in kinds]
    order = data.draw(st.lists(st.sampled_from(encoded), max_size=40)) if encoded else []
    assert_equal(at_once(order), one_by_one(order))


COLUMNS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 200),
    st.floats(),
    st.binary(max_size=200),
    st.lists(st.integers(-3, 300)),
    st.booleans(),
    st.none(),
)
"""The values of one column of a table: of one type, or of several."""


@settings(deadline=None)
@given(st.integers(1, 30), st.data())
def test_columns_are_encoded_as_their_rows_are(rows: int, data: Any) -> None:
    values = st.one_of(
        *(st.lists(kind, min_size=rows, max_size=rows) for kind in COLUMNS.original_strategies),
        st.lists(COLUMNS, min_size=rows, max_size=rows),
    )
    columns = data.draw(st.dictionaries(st.text(max_size=140), values, min_size=1, max_size=4))
    wanted = [
        example.encode(
            {name: column[row] for name, column in columns.items() if column[row] is not None}
        )
        for row in range(rows)
    ]
    assert example_batch.encode(columns) == wanted


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_a_column_with_an_integer_of_more_than_64_bits_is_refused(value: int) -> None:
    with pytest.raises(RecordError, match="'x'"):
        example_batch.encode({"x": [1, value]})


RANDOM = np.random.default_rng(3)


def row(number: int) -> dict[str, Any]:
    return {
        "id": [number * 37 - 500, 1 << (number % 64 - 1) if number % 64 else -1],
        "name": f"name {number**3 % 1000}",
        "prediction": RANDOM.random(3).astype(np.float32),
        "tags": [b"\xff" * (number % 3), b"x"],
        "empty": np.empty(0, np.float32),
    }


def test_records_of_one_origin_are_few_groups() -> None:
    records = [example.encode(row(number)) for number in range(500)]
    assert_equal(at_once(records), one_by_one(records))
    same = [example.encode({"a": float(n), "b": b"text", "c": n % 100}) for n in range(500)]
    assert len(example_batch.decode(same)) == 1


def test_a_record_that_differs_in_any_bit_is_decoded_as_it_is() -> None:
    """The layout of the first record must not stand for another one's."""
    usual = example.encode({"a": [1.0, 2.0], "b": [7, 300], "c": [b"xy", b"z"]})
    for bit in range(8 * len(usual)):
        changed = bytearray(usual)
        changed[bit // 8] ^= 1 << bit % 8
        records = [usual] * 6 + [bytes(changed)] * 6
        try:
            wanted = one_by_one(records)
        except RecordError:
            with pytest.raises(RecordError):
                example_batch.decode(records)
        else:
            assert_equal(at_once(records), wanted)
