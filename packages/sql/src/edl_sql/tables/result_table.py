"""A table of results: rows for each evaluation or explanation of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from edl.plugins.errors import usage
from edl_sql.databases.database import Database, explain
from edl_sql.databases.errors import DatabaseLocked
from edl_sql.databases.names import ignores_column_case, quote_name, quote_table
from edl_sql.language.table_names import find_name, split

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table
    from sqlalchemy.types import TypeEngine

ResultRow = Mapping[str, str | int | float | datetime]

_MAX_NAME_LENGTH = 255
_FORBIDDEN, _COLUMN_TWICE, _NO_TABLE = 1044, 1060, 1146
"""Errors of MariaDB and MySQL."""


def check_columns(database: Database, table: str, names: list[str]) -> None:
    """Check that a table has these columns, or that there is none of this name.

    Raises:
        EdlError: the database refuses something.
        Problem: the table lacks a column.
    """
    import sqlalchemy as sql

    schema, name = split(table)
    with database.reading() as connection:
        inspector = sql.inspect(connection)
        if not inspector.has_table(name, schema=schema):
            return
        known = {each["name"] for each in inspector.get_columns(name, schema=schema)}
    for each in names:
        if find_name(each, known, any_case=ignores_column_case(database.backend)) is None:
            raise usage(
                f"the table {table} has no column {each}, so it is not a table of results",
                where=f"INTO {table}",
                remedy="Add the column, or name a new table, which edl creates.",
            )


def check_insertable(database: Database, table: str, values: ResultRow) -> None:
    """Check before a model is evaluated that a row can be added to a table.

    Args:
        values: as for ``append_rows``, of one row; not yet those of the metrics.

    Raises:
        EdlError: the database refuses something.
        Problem: the table lacks a column.
    """
    import sqlalchemy as sql

    check_columns(database, table, list(values))
    schema, name = split(table)
    with suppress(DatabaseLocked), database.trial_transaction() as connection:
        rows = _table(table, values)
        if sql.inspect(connection).has_table(name, schema=schema):
            row = sql.select(*(sql.literal(v, _type(v)) for v in values.values()))
            explain(connection, rows.insert().from_select(list(values), row))
        elif connection.dialect.name in ("mysql", "mariadb"):
            _check_may_create(connection, table)
        else:
            rows.create(connection)


def _check_may_create(connection: Connection, table: str) -> None:
    """Check that this user may create and fill a table that is not there.

    MariaDB and MySQL cannot take back a table. They refuse both statements always, and where a
    privilege is missing, they say that first.
    """
    from sqlalchemy.exc import DBAPIError

    name = quote_table(connection, table)
    schema, _ = split(table)
    place = quote_name(connection, schema or str(connection.engine.url.database))
    for statement, expected in (
        (f"SHOW TABLES FROM {place} LIKE ''", _FORBIDDEN),  # CREATE alone does not allow it
        (f"CREATE TABLE {name} (a INT, a INT)", _COLUMN_TWICE),
        (f"EXPLAIN INSERT INTO {name} VALUES (1)", _NO_TABLE),
    ):
        try:
            connection.exec_driver_sql(statement, execution_options={"no_parameters": True})
        except DBAPIError as error:
            if getattr(error.orig, "args", (None,))[0] != expected:
                raise


def append_rows(database: Database, table: str, values: Sequence[ResultRow]) -> bool:
    """Add rows to a table, and create the table if need be.

    Args:
        table: its name, or schema.table.
        values: of each row by column; integers become BIGINT, floats DOUBLE, texts VARCHAR, times
            the type for date and time that SQLAlchemy has for the database.

    Returns:
        Whether the table was created.

    Raises:
        EdlError: the database refuses something.
    """
    import sqlalchemy as sql

    schema, name = split(table)
    with database.writing() as connection:
        is_new = not sql.inspect(connection).has_table(name, schema=schema)
        rows = _table(table, values[0])
        if is_new:
            rows.create(connection)
        connection.execute(rows.insert(), [dict(row) for row in values])
    return is_new


def _table(table: str, values: ResultRow) -> Table:
    import sqlalchemy as sql

    schema, name = split(table)
    columns = [sql.Column(each, _type(value)) for each, value in values.items()]
    return sql.Table(name, sql.MetaData(), *columns, schema=schema)


def _type(value: object) -> TypeEngine[Any]:
    import sqlalchemy as sql

    if isinstance(value, datetime):
        return sql.DateTime()
    if isinstance(value, int):
        return sql.BigInteger()
    return sql.Double() if isinstance(value, float) else sql.String(_MAX_NAME_LENGTH)
