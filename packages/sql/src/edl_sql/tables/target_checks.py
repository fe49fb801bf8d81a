"""Checks, before anything is predicted, that a table can take the predictions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from edl.plugins.errors import Problem, usage
from edl_convert.column_types import Cell
from edl_convert.tables import unreadable
from edl_proto.errors import EdlError, ErrorCode
from edl_sql.databases.database import Database
from edl_sql.databases.errors import DatabaseLocked, DatabaseUnreachable
from edl_sql.databases.names import quote_name, quote_table
from edl_sql.language.table_names import split
from edl_sql.language.tokens import dialect_of, without_semicolons
from edl_sql.tables.catalog import identifying_columns
from edl_sql.tables.column_loader import LoadTransaction
from edl_sql.tables.row_keys import row_key
from edl_sql.tables.target_columns import Target, check_type, fits, resolve

if TYPE_CHECKING:
    from sqlalchemy import Connection

_COLUMN_EXISTS = 1060
"""Error of MariaDB and MySQL: a column of this name exists."""

KEY_CHECK_S = 120
"""Time limit of a database for comparing keys."""
_CHECK_INTERVAL = 100_000
"""Instructions of SQLite between two checks of the time limit."""


def check_target(database: Database, target: Target, kinds: Sequence[Cell]) -> None:
    """Check that a table can take predictions, and that this user may write them.

    Args:
        kinds: what the predictions may be.

    Raises:
        EdlError, Problem: the table or the key is not there, the column holds something else, or a
            privilege is missing.
    """
    where = f"{database.shown}, table {target.table}"
    with database.reading() as connection:
        found, types = resolve(connection, target, where)
    known = types.get(found.column)
    fitting = [kind for kind in kinds if known is None or fits(known, kind)]
    if known is not None and not fitting:
        check_type(known, kinds[0], found.column, where)
    with suppress(DatabaseLocked):
        _try_update(database, target, fitting[0], where)


def _try_update(database: Database, target: Target, kind: Cell, where: str) -> None:
    """Prepare everything and roll it back; the database checks privileges all the same."""
    with database.trial_transaction() as connection:
        loading = LoadTransaction(connection, target, kind, where)
        loading.dry_run()
        if loading.column_is_new:
            _check_may_add(connection, target, where)


def _check_may_add(connection: Connection, target: Target, where: str) -> None:
    """Check that this user may add a column. Adding one on trial would block other sessions."""
    import sqlalchemy as sql
    from sqlalchemy.exc import DBAPIError

    table = quote_table(connection, target.table)
    if connection.dialect.name == "postgresql":
        of_table = sql.text(
            "SELECT relkind IN ('r', 'p', 'f') AND NOT relispartition,"
            " pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = CAST(:name AS regclass)"
        )
        takes_columns, is_owned = connection.execute(of_table, {"name": table}).one()
        if not takes_columns:
            raise _no_table(target, where)
        if not is_owned:
            raise EdlError(
                ErrorCode.FORBIDDEN,
                f"this user must own the table to add the column {target.column}",
                where=where,
                remedy=f"Ask its owner to add it and let you write: GRANT UPDATE ({target.column}),"
                f" SELECT ON {target.table} TO …",
            )
    elif connection.dialect.name in ("mysql", "mariadb"):
        # A column cannot be added twice; a missing privilege would be reported first.
        again = f"ALTER TABLE {table} ADD COLUMN edl_twice INT, ADD COLUMN edl_twice INT"
        try:
            connection.exec_driver_sql(again, execution_options={"no_parameters": True})
        except DBAPIError as error:
            if getattr(error.orig, "args", (None,))[0] != _COLUMN_EXISTS:
                raise
    else:
        schema, name = split(target.table)
        if name in sql.inspect(connection).get_view_names(schema=schema):
            raise _no_table(target, where)


def _no_table(target: Target, where: str) -> Problem:
    return usage(
        f"{target.table} cannot get a column {target.column}: it is a view or a partition",
        where=where,
        remedy="Name the table itself, or an existing column.",
    )


def check_keys(database: Database, target: Target, query: str) -> bool:
    """Check that each row of a query has its row of the table, one only if there is a key.

    The database compares them, with the query as a part of its own, and has two minutes for it.

    Returns:
        Whether the time was enough.

    Raises:
        EdlError: a key is NULL, has no row or several, or several rows of the query have it.
    """
    deadline = time.monotonic() + KEY_CHECK_S
    found = _first_wrong(database, target, query)
    if found is None:
        return time.monotonic() < deadline
    value, rows, matches = found
    key = target.key
    if target.alike:
        what = (
            f"no row of {target.table} has the values of {', '.join(target.alike)} that a selected"
            " row has"
        )
    elif value is None:
        what = f"the key {key} of a selected row is NULL"
    elif rows > 1:
        what = f"{key} is not unique: {rows} selected rows have {key} {value}"
    elif matches:
        what = f"{key} is not unique: {matches} rows of {target.table} have {key} {value}"
    else:
        what = f"a selected row has {key} {value}, and no row of {target.table} has it"
    raise unreadable(
        what,
        database.shown,
        "Select rows of the table, each once, and name a column that differs for each row with"
        " --key.",
    )


def _limit_time(connection: Connection) -> None:
    """Have the database end the next query by itself if it takes too long."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SET LOCAL statement_timeout = '{KEY_CHECK_S}s'")
    elif getattr(connection.dialect, "is_mariadb", False):
        connection.exec_driver_sql(f"SET SESSION max_statement_time = {KEY_CHECK_S}")
    elif connection.dialect.name == "mysql":
        connection.exec_driver_sql(f"SET SESSION max_execution_time = {KEY_CHECK_S * 1000}")
    else:
        deadline = time.monotonic() + KEY_CHECK_S
        driver: Any = connection.connection.dbapi_connection
        driver.set_progress_handler(lambda: time.monotonic() > deadline, _CHECK_INTERVAL)


def _first_wrong(database: Database, target: Target, query: str) -> tuple[Any, int, int] | None:
    """Return a wrong key with its rows in the SELECT and in the table; None if all are right."""
    is_declared = target.key in identifying_columns(database, target.table)
    rows = without_semicolons(query, dialect_of(database.backend))
    try:
        with database.reading() as connection:
            _limit_time(connection)
            key, table = quote_name(connection, target.key), quote_table(connection, target.table)
            table_key, wrong = key, "edl_key IS NULL OR edl_rows <> 1 OR edl_matches <> 1"
            if target.alike:
                found, types = resolve(connection, target, database.shown)
                table_key, wrong = row_key(connection, table, found.alike, types), "edl_matches = 0"
            selected = (
                f"SELECT {key} AS edl_key, COUNT(*) AS edl_rows FROM (\n{rows}\n) AS edl_selected"
                f" GROUP BY {key}"
            )
            # A declared key has an index, and few rows of a large table are looked up quickly.
            matches = (
                f"SELECT edl_key, edl_rows, (SELECT COUNT(*) FROM {table} AS edl_table"
                f" WHERE edl_table.{key} = edl_key) AS edl_matches FROM ({selected}) AS edl_keys"
                if is_declared
                else f"SELECT edl_keys.edl_key, edl_rows, COALESCE(edl_number, 0) AS edl_matches"
                f" FROM ({selected}) AS edl_keys LEFT JOIN (SELECT {table_key} AS edl_key, COUNT(*)"
                f" AS edl_number FROM {table} GROUP BY {table_key}) AS edl_table"
                f" ON edl_table.edl_key = edl_keys.edl_key"
            )
            first = (
                connection.execution_options(no_parameters=True)
                .exec_driver_sql(
                    f"SELECT edl_key, edl_rows, edl_matches FROM ({matches}) AS edl_all"
                    f" WHERE {wrong} LIMIT 1"
                )
                .first()
            )
            return None if first is None else (first[0], int(first[1]), int(first[2]))
    except DatabaseUnreachable:
        raise
    except EdlError:
        # Keys of different types may fit each other in records, and not in this database.
        return None
