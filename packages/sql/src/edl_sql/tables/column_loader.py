"""``edl data load``: predictions become a column of a table, all of them or none."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import InvalidOperation
from itertools import islice
from typing import TYPE_CHECKING, Any

from edl_convert.column_types import Cell
from edl_convert.tables import unreadable
from edl_proto.errors import EdlError, ErrorCode
from edl_sql.databases.database import Database, explain
from edl_sql.databases.names import quote_name, quote_table
from edl_sql.language.table_names import split
from edl_sql.tables.predictions import Predictions
from edl_sql.tables.row_keys import KEY_LENGTH, row_key
from edl_sql.tables.target_columns import (
    Target,
    check_type,
    key_conversion,
    resolve,
    staged_key,
    value_type,
)

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Update
    from sqlalchemy.types import TypeEngine

_BATCH = 5000
_INEXACT = 2**24
"""From here on, floats of 32 bits do not hold every integer."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What was written.

    Attributes:
        rows: of the table that have their prediction now.
        others: rows of the table without a prediction; they are as they were.
        column_added: the table did not have the column before.
    """

    rows: int
    others: int
    column_added: bool


def load_column(
    database: Database, target: Target, predictions: Predictions, on_progress: Callable[[int], None]
) -> LoadResult:
    """Write each prediction into the row of its key, in one transaction.

    The predictions go to a temporary table first. The table is changed only if each of them has
    exactly one row, or at least one if rows have no key. To do the same again changes nothing.
    MariaDB and MySQL commit a column that is added at once: after an error that follows, it is
    there and empty.

    Args:
        on_progress: called with the number of predictions sent so far, from time to time.

    Raises:
        EdlError: predictions and table do not fit each other, or the database refuses something.
    """
    kind = predictions.kind()
    if kind is Cell.EMPTY:
        raise EdlError(
            ErrorCode.DATA_EMPTY,
            "there are no predictions to load",
            where="--from",
            remedy="Check that the job has predicted something.",
        )
    with database.writing() as connection:
        loading = LoadTransaction(
            connection, target, kind, f"{database.shown}, table {target.table}"
        )
        number = loading.stage(predictions, on_progress)
        return loading.update(loading.check(number))


class LoadTransaction:
    """Writes predictions of one kind within the transaction of a connection.

    Attributes:
        column_is_new: the table does not have the column yet.

    Raises:
        EdlError, Problem: the target cannot take them.
    """

    def __init__(self, connection: Connection, target: Target, kind: Cell, where: str) -> None:
        import sqlalchemy as sql

        self._connection = connection
        self._kind = kind
        self._where = where
        schema, name = split(target.table)
        target, types = resolve(connection, target, where)
        self._target = target
        key_type: TypeEngine[Any] = sql.String(KEY_LENGTH)
        self._convert_key: Callable[[Any], Any] = str
        if not target.alike:
            key_type = types[target.key]
            self._convert_key = key_conversion(
                key_type, target.key, where, is_untyped=connection.dialect.name == "sqlite"
            )
        self.column_is_new = target.column not in types
        of_values = value_type(kind)
        if not self.column_is_new:
            check_type(types[target.column], kind, target.column, where)
        self._table = sql.Table(
            name,
            sql.MetaData(),
            *(() if target.alike else (sql.Column(target.key, key_type),)),
            sql.Column(target.column, types.get(target.column, of_values)),
            schema=schema,
        )
        self._staged = sql.Table(
            f"edl_load_{secrets.token_hex(6)}",
            sql.MetaData(),
            sql.Column(
                "key", staged_key(connection, key_type), primary_key=True, autoincrement=False
            ),
            sql.Column("value", of_values, nullable=False),
            prefixes=["TEMPORARY"],
        )
        self._key: ColumnElement[Any] = (
            sql.literal_column(
                row_key(connection, quote_table(connection, target.table), target.alike, types)
            )
            if target.alike
            else self._table.c[target.key]
        )

    def stage(self, predictions: Predictions, on_progress: Callable[[int], None]) -> int:
        """Send the predictions to the temporary table, and return their number."""
        from sqlalchemy.exc import IntegrityError

        self._staged.create(self._connection)
        number = 0
        rows = self._convert_rows(predictions)
        while batch := list(islice(rows, _BATCH)):
            try:
                self._connection.execute(self._staged.insert(), batch)
            except IntegrityError as error:
                raise unreadable(
                    f"two predictions have the same {self._target.key}: {_detail(error.orig)}",
                    f"--key {self._target.key}",
                    "Name a key that differs for each record with --key.",
                ) from None
            number += len(batch)
            on_progress(number)
        return number

    def dry_run(self) -> None:
        """Do with no predictions what ``stage`` and ``update`` do, a new column aside.

        The database refuses the same as later; the transaction is to be rolled back.
        """
        self._staged.create(self._connection)
        if not self.column_is_new:
            explain(self._connection, self._update())

    def check(self, number: int) -> int:
        """Check that each prediction has its row, or its rows if no key identifies them.

        Returns:
            How many rows there are.
        """
        import sqlalchemy as sql

        staged = self._staged
        found = staged.join(self._table, self._key == staged.c.key)
        # From the rows of the table, the database looks keys up in the temporary one.
        keys, rows = self._connection.execute(
            sql.select(sql.func.count(sql.distinct(staged.c.key)), sql.func.count()).select_from(
                found
            )
        ).one()
        if keys != number:
            raise unreadable(
                f"{number - keys} of {number} predictions have no row in the table"
                + self._example_without_row(),
                self._where,
                "Predict the rows of this table, and name the right --key.",
            )
        if rows != number and not self._target.alike:
            raise unreadable(
                f"{self._target.key} is not unique: {number} predictions have {rows} rows",
                self._where,
                "Name a column that differs for each row with --key.",
            )
        return int(rows)

    def _example_without_row(self) -> str:
        """Return the words that name a prediction without a row; empty without a key."""
        import sqlalchemy as sql

        if self._target.alike:
            return ""
        missing = (
            sql.select(self._staged.c.key)
            .select_from(self._staged.outerjoin(self._table, self._key == self._staged.c.key))
            .where(self._key.is_(None))
        )
        first = self._connection.execute(missing.limit(1)).scalar()
        return f", such as that of {self._target.key} {first}"

    def update(self, number: int) -> LoadResult:
        """Write the column, which is added if it is missing.

        Args:
            number: of the rows that have predictions.
        """
        table = self._table
        column = table.c[self._target.column]
        if self.column_is_new:
            kind = column.type.compile(dialect=self._connection.dialect)
            self._connection.exec_driver_sql(
                f"ALTER TABLE {quote_table(self._connection, self._target.table)} "
                f"ADD COLUMN {quote_name(self._connection, column.name)} {kind}",
                execution_options={"no_parameters": True},
            )
        written = self._connection.execute(self._update()).rowcount
        if written != number:
            raise unreadable(
                f"{written} rows were updated instead of {number}; the table changed meanwhile",
                self._where,
                "Nothing was written. Try again.",
            )
        return LoadResult(number, self._count(table) - number, self.column_is_new)

    def _update(self) -> Update:
        """Return the statement that copies the staged predictions."""
        import sqlalchemy as sql

        table, staged = self._table, self._staged
        return (
            sql.update(table)
            .values({self._target.column: staged.c.value})
            .where(self._key == staged.c.key)
        )

    def _convert_rows(self, predictions: Predictions) -> Iterator[dict[str, Any]]:
        for where, key, value in predictions.items(self._kind):
            if isinstance(key, float) and abs(key) >= _INEXACT:
                raise unreadable(
                    f"{self._target.key} is {key:.0f}, and may have been another number: records"
                    " hold floats of seven digits",
                    where,
                    f"CAST {self._target.key} to an integer or a text in the query of the records.",
                )
            try:
                yield {"key": self._convert_key(key), "value": value}
            except (ValueError, InvalidOperation):
                raise unreadable(
                    f"{self._target.key} is {key!r}, which the column {self._target.key} of the "
                    "table cannot hold",
                    where,
                    "Name the right --key.",
                ) from None

    def _count(self, rows: Any) -> int:
        import sqlalchemy as sql

        return self._connection.execute(sql.select(sql.func.count()).select_from(rows)).scalar_one()


def _detail(error: Any) -> str:
    """Return what a driver says about the row that it refuses."""
    detail = getattr(getattr(error, "diag", None), "message_detail", None)
    arguments = getattr(error, "args", ())
    return str(detail or (arguments[-1] if arguments else error)).splitlines()[0]
