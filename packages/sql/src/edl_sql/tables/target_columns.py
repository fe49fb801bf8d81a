"""The columns of a table that predictions are written to, and what they can hold."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from edl.plugins.errors import usage
from edl.plugins.texts import did_you_mean
from edl_convert.column_types import Cell
from edl_proto.errors import EdlError, ErrorCode
from edl_sql.databases.names import ignores_column_case
from edl_sql.language.table_names import find_name, split
from edl_sql.tables.row_keys import ROW_KEY

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.types import TypeEngine

_MAX_KEY_LENGTH = 768
"""The characters that an index of MariaDB and MySQL can hold."""


@dataclass(frozen=True, slots=True)
class Target:
    """The column to write.

    Attributes:
        table: its name, or schema.table.
        key: the column of the table whose value identifies a row; the predictions have it, too.
        alike: columns of the table: rows that are equal in all of them get the same prediction.
            The predictions then have ``ROW_KEY``. Empty if there is a key.
    """

    table: str
    column: str
    key: str
    alike: tuple[str, ...] = ()


def resolve(
    connection: Connection, target: Target, where: str
) -> tuple[Target, dict[str, TypeEngine[Any]]]:
    """Return the target as the table spells its columns, and the types of all columns.

    Raises:
        EdlError, Problem: the table or a column is not there, or the column takes no values.
    """
    import sqlalchemy as sql

    schema, name = split(target.table)
    inspector = sql.inspect(connection)
    if not inspector.has_table(name, schema=schema):
        raise EdlError(
            ErrorCode.DATA_NOT_FOUND,
            "there is no such table",
            where=where,
            remedy=did_you_mean(name, inspector.get_table_names(schema=schema))
            or "Check its name, and its schema if it has one: --table schema.table",
        )
    columns = {column["name"]: column for column in inspector.get_columns(name, schema=schema)}
    any_case = ignores_column_case(connection.dialect.name)
    known = [find_name(name, columns, any_case=any_case) for name in target.alike]
    if None in known:
        unknown = target.alike[known.index(None)]
        raise usage(
            f"no selected column identifies a row of {target.table}, and it has no column"
            f" {unknown} to find the row by",
            where=where,
            remedy="Select a column that identifies rows, named by --key if the table does not"
            f" declare it so, or only columns of {target.table}.",
        )
    key = ROW_KEY if known else find_name(target.key, columns, any_case=any_case)
    if key is None:
        raise usage(
            f"--key {target.key}: the table has no such column",
            where=where,
            remedy=did_you_mean(target.key, columns) or f"It has {', '.join(columns)}.",
        )
    column = find_name(target.column, columns, any_case=any_case) or target.column
    keys = inspector.get_pk_constraint(name, schema=schema)["constrained_columns"]
    if column in (*keys, key):
        raise usage(
            f"the column {column} identifies the rows of the table",
            where=where,
            remedy="Name another column for the predictions.",
        )
    if column in columns and "computed" in columns[column]:
        raise usage(
            f"the database computes the column {column} itself",
            where=where,
            remedy="Name another column: a column that does not exist is created.",
        )
    types = {each: _unwrap_domain(entry["type"]) for each, entry in columns.items()}
    alike = tuple(name for name in known if name is not None)
    return replace(target, key=key, column=column, alike=alike), types


def _unwrap_domain(known: Any) -> TypeEngine[Any]:
    """Return the type below a PostgreSQL domain."""
    while getattr(known, "data_type", None) is not None:
        known = known.data_type
    found: TypeEngine[Any] = known
    return found


def value_type(kind: Cell) -> TypeEngine[Any]:
    """Return the type of a column that is created for predictions."""
    import sqlalchemy as sql

    match kind:
        case Cell.INT:
            return sql.BigInteger()
        case Cell.FLOAT:
            return sql.Double()
        case _:
            return sql.Text()


def fits(known: TypeEngine[Any], kind: Cell) -> bool:
    """Return whether a column of this type can hold values of this kind."""
    import sqlalchemy as sql

    fitting: dict[Cell, tuple[type[TypeEngine[Any]], ...]] = {
        Cell.INT: (sql.Integer, sql.Numeric, sql.types.NullType),
        Cell.FLOAT: (sql.Numeric, sql.types.NullType),
        Cell.TEXT: (sql.String, sql.types.NullType),
    }
    return isinstance(known, fitting[kind])


def check_type(known: TypeEngine[Any], kind: Cell, name: str, where: str) -> None:
    """Raise a ``Problem`` if an existing column cannot hold values of this kind."""
    if fits(known, kind):
        return
    raise usage(
        f"the column {name} is of type {known}, and the predictions are "
        f"{ {Cell.INT: 'integers', Cell.FLOAT: 'floats'}.get(kind, 'texts') }",
        where=where,
        remedy="Name another column: a column that does not exist is created.",
    )


def key_conversion(
    known: TypeEngine[Any], key: str, where: str, *, is_untyped: bool
) -> Callable[[Any], Any]:
    """Return a function that converts keys of the predictions to values of the table's key column.

    Args:
        is_untyped: the database keeps dates and times as the texts or numbers that they are.

    Raises:
        Problem: a record cannot hold keys of this type.
    """
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
    if is_untyped:
        return lambda value: value
    raise usage(
        f"--key {key} is a column of type {known}",
        where=where,
        remedy="Name a column of integers or texts.",
    )


def staged_key(connection: Connection, known: TypeEngine[Any]) -> TypeEngine[Any]:
    """Return the type of the keys in a temporary table, which compares like the table's own."""
    import sqlalchemy as sql

    backend = connection.dialect.name
    if backend == "sqlite" and not isinstance(known, sql.Integer | sql.Numeric | sql.String):
        return _make_untyped()
    if backend in ("mysql", "mariadb") and isinstance(known, sql.Text):
        return sql.String(_MAX_KEY_LENGTH, collation=known.collation)
    if isinstance(known, sql.Enum):
        known = copy(known)
        known.create_type = False  # type: ignore[attr-defined]  # of PostgreSQL: it is there
    return known


def _make_untyped() -> TypeEngine[Any]:
    """Return the type of an SQLite column that stores values unconverted."""
    import sqlalchemy as sql

    class Untyped(sql.types.UserDefinedType[Any]):
        cache_ok = True

        def get_col_spec(self, **_: Any) -> str:
            return "BLOB"

    return Untyped()


def _whole(value: Any) -> int:
    number = int(value)
    if number != (float(value) if isinstance(value, float) else number):
        raise ValueError(value)
    return number
