"""DuckDB for SQLAlchemy, as far as reading needs it: queries of Parquet, CSV and its own files.

A connection only reads: a file of DuckDB is opened for that, and statements that are no SELECT are
refused, as ``COPY … TO`` would write files.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.exc import DBAPIError, NoSuchTableError
from sqlalchemy.types import UserDefinedType

from edl.plugins.data import user_path
from edl_proto.errors import EdlError, ErrorCode

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection

_TABLES = """
    SELECT table_name FROM information_schema.tables
    WHERE table_type = ? AND lower(table_schema) = lower(coalesce(?, current_schema()))
"""
_SQLITE = b"SQLite format 3\0"
_SCHEMAS = "SELECT DISTINCT schema_name FROM information_schema.schemata"
_PRIMARY_KEY = """
    SELECT unnest(constraint_column_names) FROM duckdb_constraints()
    WHERE constraint_type = 'PRIMARY KEY' AND lower(table_name) = lower(?)
        AND lower(schema_name) = lower(coalesce(?, current_schema()))
"""


class DuckDBType(UserDefinedType[Any]):
    """A type by the name that DuckDB gives it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def get_col_spec(self, **_: Any) -> str:
        return self._name


class DuckDBDialect(DefaultDialect):
    """Passes statements on as they are; there are no transactions, for nothing is written."""

    name = "duckdb"
    driver = "duckdb"
    supports_statement_cache = True

    @classmethod
    def import_dbapi(cls) -> ModuleType:
        import duckdb

        return duckdb

    def create_connect_args(self, url: URL) -> tuple[list[Any], dict[str, Any]]:
        if url.database in (None, "", ":memory:"):
            return [":memory:"], {}
        file = user_path(str(url.database)).absolute()
        if not file.is_file():
            raise EdlError(
                ErrorCode.DATA_NOT_FOUND,
                "the DuckDB database file does not exist",
                where=str(file),
                remedy="duckdb:// alone reads the files that the query names.",
            )
        with file.open("rb") as content:  # for which DuckDB would download an extension
            is_sqlite = content.read(len(_SQLITE)) == _SQLITE
        if is_sqlite:
            raise EdlError(
                ErrorCode.DATA_UNREADABLE,
                "the file is a database of SQLite",
                where=str(file),
                remedy=f"Write sqlite:///{url.database}",
            )
        return [str(file)], {"read_only": True}

    def do_execute(self, cursor: Any, statement: str, parameters: Any, context: Any = None) -> None:
        self._check(cursor, statement)
        cursor.execute(statement, parameters)

    def do_execute_no_params(self, cursor: Any, statement: str, context: Any = None) -> None:
        self._check(cursor, statement)
        cursor.execute(statement)

    def _check(self, cursor: Any, statement: str) -> None:
        duckdb = self.import_dbapi()
        found = [each.type for each in duckdb.extract_statements(statement)]
        if found != [duckdb.StatementType.SELECT]:
            raise duckdb.InvalidInputException("readonly database: this is not a SELECT")

    def do_begin(self, dbapi_connection: Any) -> None:
        """Do nothing: every SELECT sees one snapshot of a file."""

    do_commit = do_rollback = do_begin

    def get_schema_names(self, connection: Connection, **_: Any) -> Any:
        return connection.exec_driver_sql(_SCHEMAS).scalars().all()

    def get_table_names(self, connection: Connection, schema: str | None = None, **_: Any) -> Any:
        return connection.exec_driver_sql(_TABLES, ("BASE TABLE", schema)).scalars().all()

    def get_view_names(self, connection: Connection, schema: str | None = None, **_: Any) -> Any:
        return connection.exec_driver_sql(_TABLES, ("VIEW", schema)).scalars().all()

    def get_columns(
        self, connection: Connection, table_name: str, schema: str | None = None, **_: Any
    ) -> Any:
        """Return names and types; the table may also be a file.

        Raises:
            NoSuchTableError: there is no such table.
        """
        quote = self.identifier_preparer.quote_identifier
        table = ".".join(map(quote, filter(None, (schema, table_name))))
        try:
            rows = connection.exec_driver_sql(
                f"SELECT column_name, column_type FROM (DESCRIBE {table})"
            )
        except DBAPIError as error:
            if isinstance(error.orig, self.import_dbapi().CatalogException):
                raise NoSuchTableError(table_name) from None
            raise
        return [{"name": name, "type": DuckDBType(kind)} for name, kind in rows]

    def get_pk_constraint(
        self, connection: Connection, table_name: str, schema: str | None = None, **_: Any
    ) -> Any:
        found = connection.exec_driver_sql(_PRIMARY_KEY, (table_name, schema))
        return {"name": None, "constrained_columns": list(found.scalars())}
