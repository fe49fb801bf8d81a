"""Rows as a model file expects them."""

from __future__ import annotations

import pytest

from edl_proto.errors import EdlError
from edl_worker.model_file.row_order import find_order


def arrange(columns: str, wanted: str, *rows: str) -> list[str]:
    order = find_order(columns.split(","), wanted.split(",") if wanted else ())
    blocks = order.arrange(lambda: iter([[row.encode() for row in rows]]))
    return [row.decode() for block in blocks for row in block]


def test_rows_come_in_the_wanted_order_without_other_columns() -> None:
    rows = ("1,2,3", '"a, b","c ""d"" e",ü', '"two\nlines",,x', ",,")
    assert arrange("a,b,c", "c,a", *rows) == [
        "3,1",
        'ü,"a, b"',
        'x,"two\nlines"',
        ",",
    ]


def test_rows_that_are_in_order_stay_as_they_are() -> None:
    row = '"1",2 ,"3"'
    for wanted in ("a,b,c", ""):
        assert arrange("a,b,c", wanted, row) == [row]
    assert find_order(("a", "b"), ("a", "label", "b")).places is None


def test_columns_that_are_not_there_are_left_out() -> None:
    assert find_order(("b", "a"), ("a", "label", "b")).names == ("a", "b")
    assert arrange("b,a", "a,label,b", "1,2") == ["2,1"]


@pytest.mark.parametrize("row", ["1,2", '1,"2, 3"', "1,2,3,4"])
def test_a_row_with_another_number_of_fields_is_refused(row: str) -> None:
    with pytest.raises(EdlError, match="the header 3"):
        arrange("a,b,c", "c,b,a", row)
