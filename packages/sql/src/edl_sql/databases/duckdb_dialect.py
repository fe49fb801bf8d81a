"""DuckDB for SQLAlchemy, as far as reading needs it: queries of Parquet, CSV and its own files.

A connection only reads: a file of DuckDB is opened for that, and statements that are no SELECT are
refused, as ``COPY … TO`` would write files.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from sqlalchemy.engine.default import DefaultDialect

from edl.plugins.data import user_path
from edl_proto.errors import EdlError, ErrorCode

if TYPE_CHECKING:
    from sqlalchemy import URL


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
        return [str(file)], {"read_only": True}

    def do_execute(self, cursor: Any, statement: str, parameters: Any, context: Any = None) -> None:
        self._check(cursor, statement)
        cursor.execute(statement)

    def do_execute_no_params(self, cursor: Any, statement: str, context: Any = None) -> None:
        self.do_execute(cursor, statement, ())

    def _check(self, cursor: Any, statement: str) -> None:
        duckdb = self.import_dbapi()
        found = [each.type for each in duckdb.extract_statements(statement)]
        if found != [duckdb.StatementType.SELECT]:
            raise duckdb.InvalidInputException("readonly database: this is not a SELECT")

    def do_begin(self, dbapi_connection: Any) -> None:
        """Do nothing: every SELECT sees one snapshot of a file."""

    do_commit = do_rollback = do_begin
