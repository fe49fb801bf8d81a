"""What databases say about their tables: names, columns and keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from edl.plugins.texts import did_you_mean
from edl_proto.errors import EdlError, ErrorCode
from edl_sql.databases.database import Database
from edl_sql.language.table_names import split
from edl_sql.language.tokens import dialect_of, tables_in

_COLUMN = re.compile(r"column:? [\"']?(?:\w+\.)?(\w+)", re.IGNORECASE)
"""In what databases say of a column that is not there."""


def table_names(database: Database, schema: str = "") -> list[str]:
    """Return the names of the tables and views of a schema, by default of the one in use.

    Raises:
        EdlError: there is no such schema.
    """
    import sqlalchemy

    with database.reading() as connection:
        inspector = sqlalchemy.inspect(connection)
        of = schema or None
        found = sorted([*inspector.get_table_names(of), *inspector.get_view_names(of)])
        schemas = inspector.get_schema_names() if schema and not found else [schema]
        if schema.lower() in map(str.lower, schemas):
            return found
        raise EdlError(
            ErrorCode.DATA_NOT_FOUND,
            f"there is no schema {schema}",
            where=database.shown,
            remedy=did_you_mean(schema, schemas) or f"There are {', '.join(sorted(schemas))}.",
        )


def column_types(database: Database, table: str) -> list[list[str]]:
    """Return the columns of a table and their types; none if there is no such table."""
    import sqlalchemy
    from sqlalchemy.exc import NoSuchTableError

    schema, name = split(table)
    with database.reading() as connection, suppress(NoSuchTableError):
        columns = sqlalchemy.inspect(connection).get_columns(name, schema)
        return [[str(column["name"]), str(column["type"])] for column in columns]
    return []


def suggest_name(database: Database, query: str, error: EdlError) -> None:
    """Let an error about a table or column that is not there name the nearest one."""
    with suppress(EdlError):
        tables = tables_in(query, dialect_of(database.backend))
        meant = ""
        if error.what.startswith("there is no such table"):
            for table in tables:
                schema, name = split(table)
                known = table_names(database, schema or "")
                meant = meant or ("" if name in known else did_you_mean(name, known))
        elif named := _COLUMN.search(error.what.partition(": ")[2]):
            columns = [name for table in tables for name, _ in column_types(database, table)]
            meant = did_you_mean(named[1], columns)
        error.remedy = meant or error.remedy


def primary_keys(database: Database, query: str) -> set[str]:
    """Return the primary keys, of one column each, of the tables that a query names."""
    import sqlalchemy
    from sqlalchemy.exc import NoSuchTableError

    found: set[str] = set()
    with database.reading() as connection:
        inspector = sqlalchemy.inspect(connection)
        for table in tables_in(query, dialect_of(database.backend)):
            schema, name = split(table)
            with suppress(NoSuchTableError):
                columns = inspector.get_pk_constraint(name, schema)["constrained_columns"]
                found.update(columns if len(columns) == 1 else ())
    return found


def identifying_columns(database: Database, table: str) -> list[str]:
    """Return the columns that each identify a row of a table, the primary key first.

    Raises:
        EdlError: there is no such table.
    """
    import sqlalchemy
    from sqlalchemy.exc import NoSuchTableError

    schema, name = split(table)
    with database.reading() as connection:
        inspector = sqlalchemy.inspect(connection)
        try:
            primary = inspector.get_pk_constraint(name, schema)["constrained_columns"]
            unique: list[Any] = [
                *inspector.get_unique_constraints(name, schema),
                *filter(_is_unique, inspector.get_indexes(name, schema)),
            ]
        except NoSuchTableError:
            raise EdlError(
                ErrorCode.DATA_NOT_FOUND,
                f"there is no table {table}",
                where=database.shown,
                remedy="After PREDICT, name an existing table and a column.",
            ) from None
    keys = [primary, *(each["column_names"] for each in unique)]
    return list(dict.fromkeys(str(key[0]) for key in keys if len(key) == 1 and key[0]))


def _is_unique(index: Mapping[str, Any]) -> bool:
    """Return whether an index is unique for all rows, and not only for those of a condition."""
    options = index.get("dialect_options", {})
    return bool(index["unique"]) and not any(name.endswith("_where") for name in options)
