"""A table of predictions that was not there: it gets the rows of the SELECT."""

from __future__ import annotations

from collections.abc import Sequence

from edl_sql.databases.database import Database
from edl_sql.databases.names import quote_name, quote_table
from edl_sql.language.table_names import split
from edl_sql.language.tokens import dialect_of, without_semicolons


def create_if_missing(
    database: Database, table: str, query: str, columns: Sequence[str] = ()
) -> str:
    """Create a table with the rows of a query, unless it is there; return its name as quoted.

    Args:
        columns: those of the query that the table gets; all by default.

    Returns:
        Empty if the table was there.

    Raises:
        EdlError: the database refuses something.
    """
    import sqlalchemy as sql

    schema, name = split(table)
    rows = without_semicolons(query, dialect_of(database.backend))
    with database.reading() as connection:
        if sql.inspect(connection).has_table(name, schema=schema):
            return ""
        quoted = quote_table(connection, table)
        if columns:
            names = ", ".join(quote_name(connection, name) for name in columns)
            rows = f"SELECT {names} FROM (\n{rows}\n) AS edl_rows"
    _execute(database, f"CREATE TABLE {quoted} AS\n{rows}")
    return quoted


def drop(database: Database, quoted: str) -> None:
    """Remove a table that ``create_if_missing`` has created.

    Raises:
        EdlError: the database refuses it.
    """
    _execute(database, f"DROP TABLE {quoted}")


def _execute(database: Database, statement: str) -> None:
    with database.writing() as connection:
        connection.execution_options(no_parameters=True).exec_driver_sql(statement)
