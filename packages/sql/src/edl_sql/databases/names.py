"""Names of tables and columns as one database wants them in a statement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edl_sql.language.table_names import split

if TYPE_CHECKING:
    from sqlalchemy import Connection

_ANY_CASE = ("mysql", "mariadb", "sqlite")


def quoted(connection: Connection, name: str) -> str:
    """A name of a column, for a statement that is sent without parameters."""
    return _single_percents(connection, connection.dialect.identifier_preparer.quote(name))


def quoted_table(connection: Connection, table: str) -> str:
    """A table, or schema and table, for a statement that is sent without parameters."""
    import sqlalchemy as sql

    schema, name = split(table)
    prepare = connection.dialect.identifier_preparer
    text = prepare.format_table(sql.Table(name, sql.MetaData(), schema=schema))
    return _single_percents(connection, text)


def columns_in_any_case(backend: str) -> bool:
    """Whether a database makes no difference between ``Price`` and ``price``."""
    return backend in _ANY_CASE


def _single_percents(connection: Connection, text: str) -> str:
    """SQLAlchemy doubles percent signs for drivers that would take them for parameters."""
    is_doubled = connection.dialect.paramstyle in ("format", "pyformat")
    return text.replace("%%", "%") if is_doubled else text
