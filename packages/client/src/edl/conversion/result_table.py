"""A table of results: one row for each evaluation of a model."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from edl.adapters.databases import Database
from edl.core.problem import usage

if TYPE_CHECKING:
    from sqlalchemy.types import TypeEngine

ResultRow = Mapping[str, str | int | float | datetime]

_LONGEST_NAME = 255


def check_columns(database: Database, table: str, names: list[str]) -> None:
    """Check that a table has these columns, or that there is none of this name.

    Raises:
        EdlError: the database refuses something.
        Problem: the table lacks a column.
    """
    import sqlalchemy as sql

    schema, _, name = table.rpartition(".")
    with database.reading() as connection:
        inspector = sql.inspect(connection)
        if not inspector.has_table(name, schema=schema or None):
            return
        known = {each["name"] for each in inspector.get_columns(name, schema=schema or None)}
    for each in names:
        if each not in known:
            raise usage(
                f"the table {table} has no column {each}, so it is not a table of results",
                where=f"INTO {table}",
                remedy="Name another table, which is created, or add the column.",
            )


def append_row(database: Database, table: str, values: ResultRow) -> bool:
    """Add a row to a table, which is created if there is none.

    Args:
        table: its name, or schema.table.
        values: by column; integers become BIGINT, floats DOUBLE, texts VARCHAR, times TIMESTAMP.

    Returns:
        Whether the table was created.

    Raises:
        EdlError: the database refuses something.
    """
    import sqlalchemy as sql

    schema, _, name = table.rpartition(".")
    with database.writing() as connection:
        is_new = not sql.inspect(connection).has_table(name, schema=schema or None)
        columns = [sql.Column(each, _type(value)) for each, value in values.items()]
        rows = sql.Table(name, sql.MetaData(), *columns, schema=schema or None)
        if is_new:
            rows.create(connection)
        connection.execute(rows.insert(), dict(values))
    return is_new


def _type(value: object) -> TypeEngine[Any]:
    import sqlalchemy as sql

    if isinstance(value, datetime):
        return sql.DateTime()
    if isinstance(value, int):
        return sql.BigInteger()
    return sql.Double() if isinstance(value, float) else sql.String(_LONGEST_NAME)
