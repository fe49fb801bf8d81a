"""A table of results: one row for each evaluation of a model."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from edl.adapters.databases import Database
from edl.core.problem import usage

if TYPE_CHECKING:
    from sqlalchemy import Table
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


def check_insertable(database: Database, table: str, values: ResultRow) -> None:
    """Check before a model is evaluated that a row can be added to a table.

    Whether this user may create a table, MariaDB and MySQL tell only when it is created.

    Args:
        values: as for ``append_row``; not yet those of the metrics.

    Raises:
        EdlError: the database refuses something.
        Problem: the table lacks a column.
    """
    import sqlalchemy as sql

    check_columns(database, table, list(values))
    schema, _, name = table.rpartition(".")
    with database.rehearsing() as connection:
        rows = _table(table, values)
        if sql.inspect(connection).has_table(name, schema=schema or None):
            none = sql.select(*(sql.literal(v, _type(v)) for v in values.values()))
            connection.execute(rows.insert().from_select(list(values), none.where(sql.false())))
        elif connection.dialect.name not in ("mysql", "mariadb"):
            rows.create(connection)


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
        rows = _table(table, values)
        if is_new:
            rows.create(connection)
        connection.execute(rows.insert(), dict(values))
    return is_new


def _table(table: str, values: ResultRow) -> Table:
    import sqlalchemy as sql

    schema, _, name = table.rpartition(".")
    columns = [sql.Column(each, _type(value)) for each, value in values.items()]
    return sql.Table(name, sql.MetaData(), *columns, schema=schema or None)


def _type(value: object) -> TypeEngine[Any]:
    import sqlalchemy as sql

    if isinstance(value, datetime):
        return sql.DateTime()
    if isinstance(value, int):
        return sql.BigInteger()
    return sql.Double() if isinstance(value, float) else sql.String(_LONGEST_NAME)
