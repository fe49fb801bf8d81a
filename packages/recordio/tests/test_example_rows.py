"""Rows of Arrow tables as records: the same bytes as one by one."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

import recordio
from recordio import example
from recordio.example_rows import RowEncoder, storable_columns

integers = st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=5)
floats = st.floats(width=32, allow_nan=False)
CELLS = {
    "bool": (pyarrow.bool_(), st.booleans()),
    "int8": (pyarrow.int8(), st.integers(-128, 127)),
    "int64": (pyarrow.int64(), integers),
    "uint64": (pyarrow.uint64(), st.integers(0, 2**63 - 1)),
    "float32": (pyarrow.float32(), floats),
    "float64": (pyarrow.float64(), floats),
    "string": (pyarrow.string(), texts),
    "large_string": (pyarrow.large_string(), texts),
    "binary": (pyarrow.binary(), st.binary(max_size=5)),
    "fixed": (pyarrow.binary(2), st.binary(min_size=2, max_size=2)),
    "category": (pyarrow.dictionary(pyarrow.int32(), pyarrow.string()), texts),
    "numbers": (pyarrow.list_(pyarrow.int64()), st.lists(integers, max_size=3)),
    "vector": (pyarrow.list_(pyarrow.float32(), 2), st.lists(floats, min_size=2, max_size=2)),
    "words": (pyarrow.large_list(pyarrow.string()), st.lists(texts, max_size=3)),
}


@pytest.mark.parametrize("name", CELLS)
@given(data=st.data())
def test_a_row_is_what_its_values_are_one_by_one(name: str, data: st.DataObject) -> None:
    kind, cells = CELLS[name]
    few = data.draw(st.lists(cells, min_size=1, max_size=2), "often repeated")
    values = data.draw(st.lists(st.one_of(st.none(), cells, st.sampled_from(few)), max_size=20))
    cut = data.draw(st.integers(0, len(values)), "end of the first chunk")
    parts = [pyarrow.array(part, kind) for part in (values[:cut], values[cut:])]
    column = pyarrow.chunked_array(parts, kind)
    row = pyarrow.array(range(len(values)), pyarrow.int64())
    table = pyarrow.table({"row": row, name: column})
    start, stop = sorted(data.draw(st.tuples(st.integers(0, 25), st.integers(0, 25))))
    wanted = [
        example.encode({"row": row} | ({name: value} if value is not None else {}))
        for row, value in enumerate(values)
    ]
    assert storable_columns(table.schema) == ["row", name]
    assert RowEncoder(table).encode(start, stop) == wanted[start:stop]


def test_numbers_beyond_a_float_are_infinite_and_nan_stays() -> None:
    column = pyarrow.array([1e300, math.nan, None], pyarrow.float64())
    rows = map(example.decode, RowEncoder(pyarrow.table({"x": column})).encode(0, 3))
    first, second, third = rows
    assert first["x"] == math.inf
    assert math.isnan(second["x"][0])
    assert third == {}


def test_decimals_are_floats_and_dates_and_timestamps_integers() -> None:
    moment = datetime.datetime(1970, 1, 2, 0, 0, 1)
    east = datetime.timezone(datetime.timedelta(hours=1))
    values = {
        "date": pyarrow.array([datetime.date(1970, 1, 3)]),
        "date64": pyarrow.array([datetime.date(1970, 1, 3)], pyarrow.date64()),
        "decimal": pyarrow.array([decimal.Decimal("1.5")]),
        "nanoseconds": pyarrow.array([1999], pyarrow.timestamp("ns")),
        "seconds": pyarrow.array([moment], pyarrow.timestamp("s")),
        "zone": pyarrow.array([moment.replace(tzinfo=east)], pyarrow.timestamp("ms", "UTC")),
    }
    table = pyarrow.table(values)
    assert storable_columns(table.schema) == list(values)
    assert RowEncoder(table).encode(0, 1) == [
        example.encode(
            {
                "date": 2,
                "date64": 2,
                "decimal": 1.5,
                "nanoseconds": 1,
                "seconds": 86_401_000_000,
                "zone": 82_801_000_000,
            }
        )
    ]


@pytest.mark.parametrize(
    "value",
    [
        datetime.time(12, 30),
        datetime.timedelta(1),
        {"a": 1},
        [[1]],
        None,
    ],
    ids=str,
)
def test_columns_that_no_example_holds_are_known(value: Any) -> None:
    table = pyarrow.table({"x": [1], "other": [value]})
    assert storable_columns(table.schema) == ["x"]
    assert RowEncoder(table.select(["x"])).encode(0, 1) == [example.encode({"x": 1})]
    assert RowEncoder(table.select([])).encode(0, 1) == [example.encode({})]


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        ([2**63], pyarrow.uint64(), "does not fit"),
        ([[1, None]], pyarrow.list_(pyarrow.int64()), "null"),
    ],
)
def test_values_that_no_example_holds_name_their_column(
    values: list[Any], kind: Any, message: str
) -> None:
    table = pyarrow.table({"column": pyarrow.array(values, kind)})
    with pytest.raises(recordio.RecordError, match=f"'column' has .*{message}"):
        RowEncoder(table).encode(0, 1)
