"""Rows that no column identifies: a text of all their selected columns identifies equal ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edl_sql.databases.names import quote_name
from edl_sql.language.tokens import dialect_of, without_semicolons

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.types import TypeEngine

ROW_KEY = "edl_key"
KEY_LENGTH = 64
"""Characters of a hash; SQLite, which has none, takes texts of any length as keys."""


def row_key(
    connection: Connection, rows: str, names: Sequence[str], types: Mapping[str, TypeEngine[Any]]
) -> str:
    """Return an expression that is equal for rows that are equal in all these columns.

    Args:
        rows: the table's name, quoted.
        types: of the table's columns.
    """
    import sqlalchemy as sql

    columns = [f"{rows}.{quote_name(connection, name)}" for name in names]
    match connection.dialect.name:
        case "postgresql":
            row = f"CAST(ROW({', '.join(columns)}) AS text)"
            return f"encode(sha256(convert_to({row}, 'UTF8')), 'hex')"
        case "sqlite":
            return " || ',' || ".join(f"quote({column})" for column in columns)
        case _:
            # A FLOAT becomes a text of six digits, and a DOUBLE one of all.
            exact = (
                f"{column} * 1e0" if isinstance(types.get(name), sql.Float) else column
                for name, column in zip(names, columns, strict=True)
            )
            texts = ", ".join(f"QUOTE({column})" for column in exact)
            return f"SHA2(CONCAT_WS(',', {texts}), 256)"


def select_different_rows(
    connection: Connection, query: str, names: Sequence[str], types: Mapping[str, TypeEngine[Any]]
) -> str:
    """Return a query for one of each of the rows that are equal, with their key.

    The query is a part of it, unchanged. DISTINCT would not do: it compares texts by the rules of
    their column, to which upper and lower case may be equal.
    """
    key = row_key(connection, "edl_rows", names, types)
    rows = without_semicolons(query, dialect_of(connection.dialect.name))
    return (
        f"SELECT * FROM (SELECT edl_rows.*, {key} AS {ROW_KEY},"
        f" ROW_NUMBER() OVER (PARTITION BY {key}) AS edl_number FROM (\n{rows}\n) AS edl_rows)"
        " AS edl_numbered WHERE edl_number = 1"
    )
