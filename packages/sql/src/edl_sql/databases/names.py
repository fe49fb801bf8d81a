"""Names of tables and columns as one database wants them in a statement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edl_sql.language.table_names import split

if TYPE_CHECKING:
    from sqlalchemy import Connection

_ANY_CASE = ("mysql", "mariadb", "sqlite")


def quote_name(connection: Connection, name: str) -> str:
    """Quote the name of a column for a statement that is sent without parameters."""
    return _single_percents(connection, connection.dialect.identifier_preparer.quote(name))


def quote_table(connection: Connection, table: str) -> str:
    """Quote ``table`` or ``schema.table`` for a statement that is sent without parameters."""
    import sqlalchemy as sql

    schema, name = split(table)
    prepare = connection.dialect.identifier_preparer
    text = prepare.format_table(sql.Table(name, sql.MetaData(), schema=schema))
    return _single_percents(connection, text)


def ignores_column_case(backend: str) -> bool:
    """Return whether ``Price`` and ``price`` are the same column to a database."""
    return backend in _ANY_CASE


def _single_percents(connection: Connection, text: str) -> str:
    """Undo that SQLAlchemy doubles percent signs for drivers that would read them as parameters."""
    is_doubled = connection.dialect.paramstyle in ("format", "pyformat")
    return text.replace("%%", "%") if is_doubled else text
