"""The rows of a query: each row a record, each column a feature of its own name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from edl.plugins.errors import usage
from edl_convert.column_types import Chosen, choose, number_classes
from edl_convert.schema import ColumnType
from edl_convert.source import ConversionOptions, ReadAgain
from edl_convert.tables import unreadable
from edl_proto.errors import EdlError, ErrorCode
from edl_sql.databases.database import Database
from edl_sql.databases.names import quote_name
from edl_sql.databases.positions import SentQuery
from edl_sql.language.tokens import Dialect, dialect_of, without_semicolons
from edl_sql.tables.catalog import suggest_name
from edl_sql.tables.values import SqlColumn, Unconvertible
from recordio import example, example_batch

if TYPE_CHECKING:
    from sqlalchemy import Connection, CursorResult

_BATCH = 4096
_MAX_LABELS = 100_000
_MAX_SHOWN = 10
_MYSQL_TEMPORAL = {7, 10, 12}
"""Type codes of its protocol: TIMESTAMP, DATE and DATETIME."""


class QuerySource:
    """The rows of a SELECT, read once through a cursor of the server, in constant memory.

    The statement is sent as it is. A NULL is a feature that is not there, whatever the type.

    Args:
        connection: sees one snapshot of the database until the last record is read.
        where: the database, for messages.
    """

    def __init__(
        self, connection: Connection, query: str, options: ConversionOptions, where: str
    ) -> None:
        self._connection = connection
        self._dialect = dialect_of(connection.dialect.name)
        self._query = without_semicolons(query, self._dialect)
        self.name = where
        self.total: int | None = None
        self.image_shape = None
        if not self._query:
            raise usage(
                "the query is empty", where="--query", remedy="For example: SELECT * FROM employee"
            )
        self.classes: Mapping[str, int] = {
            name: number for number, name in enumerate(options.classes)
        } or self._number_labels(options.label, options.numbers)
        self._result = self._execute(self._query)
        self._chosen = self._choose(options)
        self._temporal, self._keys = self._find_temporal(), options.keys
        self._wanted_floats = options.floats
        self._floats: set[int] = set()
        self._columns = self._make_columns()

    @property
    def types(self) -> Mapping[str, ColumnType]:
        return {
            name: column.type
            for name, column in zip(self._chosen.names, self._columns, strict=True)
        }

    def records(self) -> Iterator[bytes]:
        number = 0
        for rows in self._result.partitions(_BATCH):
            columns = self._convert_batch(rows)
            if columns is not None:
                yield from example_batch.encode(columns)
            else:
                self._check_integers(rows)
                for place, row in enumerate(rows, number + 1):
                    yield example.encode(self._convert_row(row, place))
            number += len(rows)
        if not number:
            raise EdlError(
                ErrorCode.DATA_EMPTY,
                "the query returns no rows",
                where=self.name,
                remedy="Check the conditions of the query.",
            )

    def _convert_batch(self, rows: Sequence[Any]) -> dict[str, Sequence[Any]] | None:
        """Return features by name, with a value for each row; None if a row has to be refused."""
        features: dict[str, Sequence[Any]] = {}
        values = list(zip(*rows, strict=True))
        columns = zip(self._chosen.names, self._chosen.places, self._columns, strict=True)
        try:
            for index, (name, place, column) in enumerate(columns):
                found = column.features(values[place])
                if index == self._chosen.label:
                    if None in found:
                        return None
                    if self.classes:
                        found = [self.classes[value] for value in values[place]]
                features[name] = found
        except (Unconvertible, KeyError):
            return None
        return features

    def _convert_row(self, row: Any, number: int) -> dict[str, Any]:
        features: dict[str, Any] = {}
        for index, (name, place, column) in enumerate(
            zip(self._chosen.names, self._chosen.places, self._columns, strict=True)
        ):
            value = row[place]
            is_label = index == self._chosen.label
            if is_label and value is None:
                raise unreadable(
                    "the label is NULL",
                    f"{self.name}, row {number}, column {column.name}",
                    f"Leave such rows out: WHERE {column.name} IS NOT NULL",
                )
            try:
                feature = column.feature(value)
            except Unconvertible as error:
                raise unreadable(
                    error.what,
                    f"{self.name}, row {number}, column {column.name}",
                    error.remedy,
                ) from None
            if feature is not None:
                features[name] = feature
            if is_label and self.classes:
                features[name] = self._class_of(value, column.name, number)
        return features

    def _class_of(self, value: Any, column: str, number: int) -> int:
        found = self.classes.get(value)
        if found is None:
            some = ", ".join(list(self.classes)[:_MAX_SHOWN])
            raise unreadable(
                f"the label is {value!r}, which is not a class of the model",
                f"{self.name}, row {number}, column {column}",
                f"Its classes are {some}{', …' if len(self.classes) > _MAX_SHOWN else ''}.",
            )
        return found

    def _choose(self, options: ConversionOptions) -> Chosen:
        if not self._result.returns_rows:
            raise usage(
                "the query is not a SELECT, so it returns no rows",
                where="--query",
                remedy="For example: SELECT name, salary FROM employee",
            )
        names = list(self._result.keys())
        empty = next((place for place, name in enumerate(names, 1) if not name.strip()), None)
        if empty is not None:
            raise usage(
                f"column {empty} of the query has no name",
                where="--query",
                remedy="Give it one: SELECT … AS name",
            )
        return choose(names, options.columns, options.label, self.name)

    def _make_columns(self) -> list[SqlColumn]:
        names = list(self._result.keys())
        return [
            SqlColumn(
                names[place],
                is_temporal=place in self._temporal,
                is_key=names[place] in self._keys,
                has_floats=place in self._floats,
                wants_floats=names[place] in self._wanted_floats,
            )
            for place in self._chosen.places
        ]

    def _find_temporal(self) -> set[int]:
        """Return the indices of columns that MySQL declares as dates or times."""
        if self._dialect is not Dialect.MYSQL:
            return set()
        described = self._result.cursor.description if self._result.cursor is not None else ()
        return {place for place, column in enumerate(described) if column[1] in _MYSQL_TEMPORAL}

    def _check_integers(self, rows: Sequence[Any]) -> None:
        """Check that columns of integers have no floats; in SQLite, only values have types.

        Raises:
            ReadAgain: one has, and is one of floats from now on.
        """
        if self._connection.dialect.name != "sqlite":
            return
        found = {
            place
            for place, column in zip(self._chosen.places, self._columns, strict=True)
            if column.type is ColumnType.INTEGER
            and any(isinstance(row[place], float) for row in rows)
        }
        if found:
            self._floats |= found
            self._columns = self._make_columns()
            self._result.close()
            self._result = self._execute(self._query)
            raise ReadAgain

    def _number_labels(self, label: str, known: Mapping[str, int]) -> Mapping[str, int]:
        """Number the label's texts in alphabetical order; return nothing for other labels.

        The database finds them, with the query as a part of its own: nothing is edited in it.
        """
        if not label:
            return {}
        column = quote_name(self._connection, label)
        rows = f"FROM (\n{self._query}\n) AS edl_rows WHERE {column} IS NOT NULL"
        with self._execute(f"SELECT {column} {rows} LIMIT 1") as first:
            value = first.scalar()
        if not isinstance(value, str):
            return {}
        is_mysql = self._dialect is Dialect.MYSQL
        # Texts that differ in case or in spaces at the end are equal to most collations of MySQL.
        text = f"HEX(CONVERT({column} USING utf8mb4))" if is_mysql else column
        with self._execute(f"SELECT DISTINCT {text} {rows}") as distinct:
            found = {str(value) for (value,) in distinct.fetchmany(_MAX_LABELS + 1)}
        if is_mysql:
            found = {bytes.fromhex(value).decode() for value in found}
        if len(found) > _MAX_LABELS:
            raise usage(
                f"the label {label} has more than {_MAX_LABELS} different texts",
                where="--label",
                remedy="Name a column of classes or of numbers.",
            )
        return number_classes(found, known)

    def _execute(self, statement: str) -> CursorResult[Any]:
        # Without parameters a driver gives no meaning to the statement's percent signs.
        return self._connection.execution_options(
            stream_results=True, yield_per=_BATCH, no_parameters=True
        ).exec_driver_sql(statement)


def column_names(database: Database, query: str, text: str = "", start: int = 0) -> list[str]:
    """Return the names of a query's columns, without reading its rows.

    Args:
        text: what a person has written, the query being a part of it: errors show a place in it.
        start: where in the text the query begins.

    Raises:
        EdlError, Problem: the database refuses the query.
    """
    rows = without_semicolons(query, dialect_of(database.backend))
    sent = SentQuery(rows, "SELECT * FROM (\n", "\n) AS edl_rows LIMIT 0", text, start)
    with database.reading() as connection, _mark_errors(database, sent):
        result = connection.execution_options(no_parameters=True).exec_driver_sql(sent.sent)
        return list(result.keys())


def read_rows(
    database: Database, query: str, text: str, start: int, limit: int
) -> tuple[list[str], list[list[Any]]]:
    """Return the names of a query's columns, and its first rows as values that JSON has.

    Args:
        text, start: as for ``column_names``.

    Raises:
        EdlError, Problem: the database refuses the query.
    """
    rows = without_semicolons(query, dialect_of(database.backend))
    with (
        database.reading() as connection,
        _mark_errors(database, SentQuery(rows, "", "", text, start)),
    ):
        result = connection.execution_options(
            stream_results=True, no_parameters=True
        ).exec_driver_sql(rows)
        found = [[_plain(value) for value in row] for row in result.fetchmany(limit)]
        names = list(result.keys())
        result.close()
        return names, found


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | None) else str(value)


@contextmanager
def _mark_errors(database: Database, sent: SentQuery) -> Iterator[None]:
    """Add the place in the query, if the database names it, to the errors that the block raises."""
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except SQLAlchemyError as error:
        found = database.error_of(error, sent)
        suggest_name(database, sent.query, found)
        raise found from None


@contextmanager
def open_query(
    url: str, password_file: str, query: str, options: ConversionOptions
) -> Iterator[QuerySource]:
    """Yield the records of a query of the database at a URL.

    Raises:
        EdlError, Problem: as ``Database`` and ``query_source``.
    """
    with query_source(Database(url, password_file), query, options) as source:
        yield source


@contextmanager
def query_source(
    database: Database, query: str, options: ConversionOptions
) -> Iterator[QuerySource]:
    """Yield the records of a query, which can be read within the context.

    Raises:
        EdlError, Problem: the database refuses the query, or a value cannot be stored in a record;
            also from within the context.
    """
    rows = without_semicolons(query, dialect_of(database.backend))
    start = len(query) - len(query.lstrip())
    with database.reading() as connection:
        if database.backend == "postgresql" and rows:
            # Places in the declaration of a cursor do not count from the query's beginning.
            sent = SentQuery(rows, "PREPARE edl_query AS ", text=query, start=start)
            with _mark_errors(database, sent):
                connection.execution_options(no_parameters=True).exec_driver_sql(sent.sent)
            connection.exec_driver_sql("DEALLOCATE edl_query")
            yield QuerySource(connection, query, options, database.shown)
            return
        with _mark_errors(database, SentQuery(rows, text=query, start=start)):
            source = QuerySource(connection, query, options, database.shown)
        yield source
