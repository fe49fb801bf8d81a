"""``edl data load``: predictions become a column of a table, all of them or none."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import islice
from typing import TYPE_CHECKING, Any

from edl.adapters.databases import Database
from edl.conversion.predictions import Predictions
from edl.conversion.tables import unreadable
from edl.core.columns import Cell
from edl.core.problem import usage
from edl.core.suggestions import did_you_mean
from edl_proto.errors import EdlError, ErrorCode

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.types import TypeEngine

_BATCH = 5000
_LONGEST_KEY = 768
"""Characters that an index of MariaDB and MySQL can hold."""


@dataclass(frozen=True, slots=True)
class Target:
    """The column to write.

    Attributes:
        table: its name, or schema.table.
        key: the column of the table whose value identifies a row; the predictions have it, too.
    """

    table: str
    column: str
    key: str


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What was written.

    Attributes:
        rows: of the table that have their prediction now; as many as there are predictions.
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
    exactly one row. To do the same again changes nothing. MariaDB and MySQL commit a column that is
    added at once: after an error that follows, it is there and empty.

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
        loading.check(number)
        return loading.update(number)


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
        self._target = target
        self._kind = kind
        self._where = where
        schema, _, name = target.table.rpartition(".")
        types = column_types(connection, target, where)
        key_type = types[target.key]
        self._convert_key = _key_conversion(key_type, target.key, where)
        self.column_is_new = target.column not in types
        value_type = _value_type(kind)
        if not self.column_is_new:
            check_type(types[target.column], kind, target.column, where)
        self._table = sql.Table(
            name,
            sql.MetaData(),
            sql.Column(target.key, key_type),
            sql.Column(target.column, types.get(target.column, value_type)),
            schema=schema or None,
        )
        if isinstance(key_type, sql.Text) and connection.dialect.name in ("mysql", "mariadb"):
            key_type = sql.String(_LONGEST_KEY)
        self._staged = sql.Table(
            f"edl_load_{secrets.token_hex(6)}",
            sql.MetaData(),
            sql.Column("key", key_type, primary_key=True, autoincrement=False),
            sql.Column("value", value_type, nullable=False),
            prefixes=["TEMPORARY"],
        )

    def stage(self, predictions: Predictions, on_progress: Callable[[int], None]) -> int:
        """Send the predictions to the temporary table; returns their number."""
        from sqlalchemy.exc import IntegrityError

        self._staged.create(self._connection)
        number = 0
        rows = self._converted(predictions)
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

    def rehearse(self) -> None:
        """Do with no predictions what ``stage`` and ``update`` do, a new column aside.

        The database refuses the same as later; the transaction is to be rolled back.
        """
        self._staged.create(self._connection)
        if not self.column_is_new:
            self._write()

    def check(self, number: int) -> None:
        """Check that each prediction has exactly one row."""
        import sqlalchemy as sql

        table, staged = self._table, self._staged
        same = table.c[self._target.key] == staged.c.key
        missing = (
            sql.select(staged.c.key)
            .select_from(staged.outerjoin(table, same))
            .where(table.c[self._target.key].is_(None))
        )
        first = self._connection.execute(missing.limit(1)).scalar()
        if first is not None:
            count = self._count(missing.subquery())
            raise unreadable(
                f"{count} of {number} predictions have no row in the table, such as that of "
                f"{self._target.key} {first}",
                self._where,
                "Predict the rows of this table, and name the right --key.",
            )
        matched = self._count(staged.join(table, same))
        if matched != number:
            raise unreadable(
                f"{self._target.key} is not unique: {number} predictions have {matched} rows",
                self._where,
                "Name a column that differs for each row with --key.",
            )

    def update(self, number: int) -> LoadResult:
        """Write the column, which is added if it is missing."""
        table = self._table
        column = table.c[self._target.column]
        if self.column_is_new:
            prepare = self._connection.dialect.identifier_preparer
            kind = column.type.compile(dialect=self._connection.dialect)
            self._connection.exec_driver_sql(
                f"ALTER TABLE {prepare.format_table(table)} "
                f"ADD COLUMN {prepare.quote(column.name)} {kind}",
                execution_options={"no_parameters": True},
            )
        written = self._write()
        if written != number:
            raise unreadable(
                f"{written} rows were updated for {number} predictions; "
                "the table changed meanwhile",
                self._where,
                "Nothing was written. Try again.",
            )
        return LoadResult(number, self._count(table) - number, self.column_is_new)

    def _write(self) -> int:
        """Copy the predictions that are staged; returns the number of rows that have got one."""
        import sqlalchemy as sql

        table, staged = self._table, self._staged
        done = self._connection.execute(
            sql.update(table)
            .values({self._target.column: staged.c.value})
            .where(table.c[self._target.key] == staged.c.key)
        )
        return done.rowcount

    def _converted(self, predictions: Predictions) -> Iterator[dict[str, Any]]:
        for where, key, value in predictions.items(self._kind):
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


def column_types(connection: Connection, target: Target, where: str) -> dict[str, TypeEngine[Any]]:
    """The columns of the table.

    Raises:
        EdlError, Problem: the table or the key is not there, or the column identifies rows.
    """
    import sqlalchemy as sql

    folder, _, name = target.table.rpartition(".")
    schema = folder or None
    inspector = sql.inspect(connection)
    if not inspector.has_table(name, schema=schema):
        raise EdlError(
            ErrorCode.DATA_NOT_FOUND,
            "there is no such table",
            where=where,
            remedy=did_you_mean(name, inspector.get_table_names(schema=schema))
            or "Check its name, and its schema if it has one: --table schema.table",
        )
    types = {
        column["name"]: column["type"] for column in inspector.get_columns(name, schema=schema)
    }
    if target.key not in types:
        raise usage(
            f"--key {target.key}: the table has no such column",
            where=where,
            remedy=did_you_mean(target.key, types) or f"It has {', '.join(types)}.",
        )
    keys = inspector.get_pk_constraint(name, schema=schema)["constrained_columns"]
    if target.column in (*keys, target.key):
        raise usage(
            f"the column {target.column} identifies the rows of the table",
            where=where,
            remedy="Name another column for the predictions.",
        )
    return types


def _value_type(kind: Cell) -> TypeEngine[Any]:
    import sqlalchemy as sql

    match kind:
        case Cell.INT:
            return sql.BigInteger()
        case Cell.FLOAT:
            return sql.Double()
        case _:
            return sql.Text()


def fits(known: TypeEngine[Any], kind: Cell) -> bool:
    """Whether a column of this type can hold such values."""
    import sqlalchemy as sql

    fitting: dict[Cell, tuple[type[TypeEngine[Any]], ...]] = {
        Cell.INT: (sql.Integer, sql.Numeric, sql.types.NullType),
        Cell.FLOAT: (sql.Numeric, sql.types.NullType),
        Cell.TEXT: (sql.String, sql.types.NullType),
    }
    return isinstance(known, fitting[kind])


def check_type(known: TypeEngine[Any], kind: Cell, name: str, where: str) -> None:
    """Raises: Problem: a column that is there already cannot hold such values."""
    if fits(known, kind):
        return
    raise usage(
        f"the column {name} is of type {known}, and the predictions are "
        f"{ {Cell.INT: 'integers', Cell.FLOAT: 'floats'}.get(kind, 'texts') }",
        where=where,
        remedy="Name another column: a column that does not exist is created.",
    )


def _key_conversion(known: TypeEngine[Any], key: str, where: str) -> Callable[[Any], Any]:
    """Makes what a column of keys holds of what the predictions have."""
    import sqlalchemy as sql

    conversions: tuple[tuple[type[TypeEngine[Any]], Callable[[Any], Any]], ...] = (
        (sql.Integer, _whole),
        (sql.Numeric, lambda value: Decimal(str(value))),
        (sql.Uuid, lambda value: uuid.UUID(str(value))),
        (sql.String, str),
        (sql.types.NullType, lambda value: value),
    )
    for kind, conversion in conversions:
        if isinstance(known, kind):
            return conversion
    raise usage(
        f"--key {key} is a column of type {known}",
        where=where,
        remedy="Name a column of integers or texts.",
    )


def _whole(value: Any) -> int:
    number = int(value)
    if number != (float(value) if isinstance(value, float) else number):
        raise ValueError(value)
    return number


def _detail(error: Any) -> str:
    """What a driver says about the row that it refuses."""
    detail = getattr(getattr(error, "diag", None), "message_detail", None)
    arguments = getattr(error, "args", ())
    return str(detail or (arguments[-1] if arguments else error)).splitlines()[0]
