"""Names of tables with and without a schema, and with dots of their own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl_sql.language.table_names import find_name, join_name, split


@pytest.mark.parametrize(
    ("table", "parts"),
    [
        ("t", (None, "t")),
        ("s.t", ("s", "t")),
        ('"a.b"', (None, "a.b")),
        ('"a.b"."c""d.e"', ("a.b", 'c"d.e')),
        ('s."a.b"', ("s", "a.b")),
        ("a.b.c", ("a.b", "c")),
        ('odd"', (None, 'odd"')),
    ],
)
def test_schema_and_name(table: str, parts: tuple[str | None, str]) -> None:
    assert split(table) == parts


@given(st.lists(st.text(st.sampled_from("aB.$ é"), min_size=1), min_size=1, max_size=2))
def test_parts_are_found_again(parts: list[str]) -> None:
    assert list(filter(None, split(join_name(parts)))) == parts


def test_upper_and_lower_case() -> None:
    assert find_name("ID", ["id"], any_case=True) == "id"
    assert find_name("ID", ["id", "ID"], any_case=True) == "ID"
    assert find_name("ID", ["id"], any_case=False) is None
