"""Values of drivers become features, or are refused with a reason."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from edl_convert.schema import ColumnType
from edl_sql.tables.values import SqlColumn, Unconvertible

ID = uuid.UUID(int=7)


@pytest.mark.parametrize(
    ("value", "kind", "feature"),
    [
        (True, ColumnType.BOOLEAN, 1),
        (-(2**63), ColumnType.INTEGER, -(2**63)),
        (2.5, ColumnType.FLOAT, 2.5),
        (Decimal("3.70"), ColumnType.DECIMAL, 3.7),
        ("Köln ", ColumnType.STRING, "Köln ".encode()),
        (ID, ColumnType.STRING, str(ID).encode()),
        (memoryview(b"\0\1"), ColumnType.BYTES, b"\0\1"),
        (date(1970, 1, 3), ColumnType.DATE, 2),
        (datetime(1970, 1, 1, 0, 0, 1), ColumnType.TIMESTAMP, 1_000_000),
        (datetime(1969, 12, 31, 23, tzinfo=UTC), ColumnType.TIMESTAMP, -3_600_000_000),
        (
            datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))),
            ColumnType.TIMESTAMP,
            0,
        ),
        ([1, 2], ColumnType.INTEGER, [1, 2]),
        (["a"], ColumnType.STRING, [b"a"]),
    ],
)
def test_every_type_has_a_feature(value: Any, kind: ColumnType, feature: Any) -> None:
    column = SqlColumn("c")
    assert column.feature(None) is None
    assert column.type is ColumnType.UNKNOWN
    assert column.feature(value) == feature
    assert column.type is kind
    assert column.feature(None) is None


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([2**63], "beyond 64 bits"),
        ([Decimal("1e39")], "beyond the range of a 32-bit float"),
        ([Decimal("1e400")], "beyond the range of a 32-bit float"),
        ([1e300], "beyond the range of a 32-bit float"),
        ([timedelta(1)], "type interval"),
        ([time(1)], "type time of day"),
        ([{"a": 1}], "type json"),
        ([object()], "type object"),
        (["\ud800"], "UTF-8"),
        ([[1, None]], "an array contains NULL"),
        ([[[1]]], "array of arrays"),
        ([[1], 1], "arrays and single values"),
        ([1, 2.5], "a value of type float in a column whose first value is of type integer"),
        ([1, "x"], "of type string in a column"),
        (["x", b"x"], "of type bytes in a column"),
        ([date(2000, 1, 1), datetime(2000, 1, 1)], "of type timestamp in a column"),
        ([date(2000, 1, 1), "0000-00-00"], "of type string in a column"),
    ],
)
def test_what_a_record_cannot_hold_is_refused(values: list[Any], words: str) -> None:
    column = SqlColumn("c")
    for value in values[:-1]:
        column.feature(value)
    with pytest.raises(Unconvertible, match=words) as refused:
        column.feature(values[-1])
    assert refused.value.remedy


@pytest.mark.parametrize("before", [[], [None, date(2000, 1, 1)]])
def test_a_text_is_no_date(before: list[Any]) -> None:
    column = SqlColumn("born", is_temporal=True)
    column.features(before)
    with pytest.raises(Unconvertible, match="0000-00-00 is not a valid date") as refused:
        column.features([date(2000, 1, 2), "0000-00-00"])
    assert "NULLIF(born, '0000-00-00')" in refused.value.remedy


@pytest.mark.parametrize(
    "values",
    [
        [1, None, 2**62, -1],
        [1.5, float("inf"), None],
        [Decimal(1), Decimal("Infinity")],
        [1.5, 2, Decimal(3)],
        ["a", "b", None],
        [True, None, False],
        [date(2000, 1, 1), date(1969, 1, 1)],
        [[1], [2, 3], []],
        [None, None],
    ],
)
def test_many_values_become_what_each_of_them_does(values: list[Any]) -> None:
    one_by_one, at_once = SqlColumn("c"), SqlColumn("c")
    for _ in range(2):  # the type is not known, and known
        assert at_once.features(values) == [one_by_one.feature(value) for value in values]
    assert at_once.type is one_by_one.type


@pytest.mark.parametrize("refused", [2**63, "x", 2.5, [1]])
def test_one_of_many_values_is_refused(refused: Any) -> None:
    column = SqlColumn("c")
    column.features([1, 2])
    with pytest.raises(Unconvertible):
        column.features([3, refused])


def test_a_column_of_floats_takes_whole_numbers() -> None:
    column = SqlColumn("c")
    assert [column.feature(value) for value in (1.5, 2, Decimal(3))] == [1.5, 2.0, 3.0]
    assert isinstance(column.feature(2), float)


@pytest.mark.parametrize(
    ("value", "is_exact"),
    [
        (Decimal(2**24), True),
        (Decimal(2**24 + 1), False),
        (0.5, True),
        (0.1, False),
        (Decimal("1e99"), False),
        (2**62, True),
        ("0.1", True),
    ],
)
def test_a_record_holds_a_key_exactly(value: Any, is_exact: bool) -> None:
    column = SqlColumn("c", is_key=True)
    if is_exact:
        assert column.features([value, value]) == [column.feature(value)] * 2
    else:
        with pytest.raises(Unconvertible, match="identifies a row"):
            column.features([None, value])
