"""Connections to databases: PostgreSQL, MariaDB, MySQL, SQLite and DuckDB.

A password is never shown: neither in a message nor in the text of a driver's error.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus

from edl.plugins.data import user_path
from edl.plugins.errors import usage
from edl.plugins.files import MAX_INPUT_BYTES, may_be_read_by_others, open_input
from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.public_settings import without_passwords
from edl_sql.databases.errors import database_error
from edl_sql.databases.positions import SentQuery
from edl_sql.language.tokens import dialect_of

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection, Engine
    from sqlalchemy.exc import SQLAlchemyError
    from sqlalchemy.sql.dml import UpdateBase

PASSWORD_VARIABLE = "EDL_DATABASE_PASSWORD"
URL_EXAMPLES = "postgresql://user@host/database, mysql://user@host/database, sqlite:///file.db, duckdb:///file.db"

_DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
    "sqlite": "sqlite",
    "duckdb": "duckdb",
}
"""Names in URLs to the dialects and drivers of SQLAlchemy."""
_WITHOUT_SERVER = ("sqlite", "duckdb")
_SECRETS = ("password", "passwd", "sslpassword", "ssl_key_password", "passfile")
_CONNECT_TIMEOUT_S = 10
_WRITE_TIMEOUT_S = 3600
"""MariaDB and MySQL close a connection whose reader is slower than this; their default is 60."""
_LOCK_TIMEOUT_S = 60
_TRIAL_S = 5


class Database:
    """A database by its URL.

    Args:
        url: with or without a password.
        password_file: its first line is the password.

    Without either, the password is taken from ``EDL_DATABASE_PASSWORD``, or from where the driver
    looks: PGPASSWORD and ``~/.pgpass`` (PGPASSFILE), or ``~/.my.cnf``.

    Raises:
        Problem: the URL or the password's file is wrong.
    """

    def __init__(self, url: str, password_file: str = "") -> None:
        parsed = _parse(url)
        self.backend = _backend(parsed)
        if password_file:
            parsed = parsed.set(password=_first_line(password_file))
        elif parsed.password is None and self.backend not in _WITHOUT_SERVER:
            parsed = parsed.set(password=os.environ.get(PASSWORD_VARIABLE) or None)
        self._secrets = _secrets(parsed)
        self.shown = _describe(parsed)
        self._url = parsed

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yield a connection that sees one snapshot of the database and cannot change it.

        Raises:
            EdlError: the database refuses something, also from within the context.
        """
        with self._connection(_engine(self._url, self.backend, read_only=True)) as connection:
            if self.backend == "postgresql":
                connection = connection.execution_options(
                    isolation_level="REPEATABLE READ", postgresql_readonly=True
                )
            elif self.backend not in _WITHOUT_SERVER:
                connection.exec_driver_sql(f"SET SESSION net_write_timeout = {_WRITE_TIMEOUT_S}")
                connection.exec_driver_sql("SET SESSION TRANSACTION READ ONLY")
                connection.rollback()
            driver = connection.connection.dbapi_connection
            try:
                yield connection
            except BaseException:
                _abandon_rows(connection, driver)
                raise

    def check_writable(self, remedy: str = "") -> None:
        """Raise a ``Problem`` for a kind of database that edl only reads."""
        if self.backend == "duckdb":
            raise usage(
                "edl only reads DuckDB",
                where=self.shown,
                remedy=remedy
                or "Write predictions to a file that DuckDB reads: edl data convert --from"
                f" {self.shown} --query 'SELECT …' --to rows, then edl predict --trained-model"
                " MODEL --data rows --keep KEY --output predictions.parquet",
            )

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Yield a connection whose transaction is committed at the end, or rolled back.

        Raises:
            EdlError: the database refuses something, also from within the context.
            Problem: this kind of database is only read.
        """
        self.check_writable()
        with (
            self._connection(_engine(self._url, self.backend, read_only=False)) as connection,
            connection.begin(),
        ):
            yield connection

    @contextmanager
    def trial_transaction(self) -> Iterator[Connection]:
        """Yield a connection whose transaction is rolled back; the database checks it all the same.

        It waits for locks for seconds only. MariaDB and MySQL cannot take back DDL.

        Raises:
            DatabaseLocked: another session holds locks on what is written.
            EdlError, Problem: as ``writing``.
        """
        self.check_writable()
        engine = _engine(self._url, self.backend, read_only=False, lock_timeout_s=_TRIAL_S)
        with self._connection(engine) as connection, connection.begin() as transaction:
            if self.backend == "postgresql":
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_TRIAL_S}s'")
            elif self.backend not in _WITHOUT_SERVER:
                connection.exec_driver_sql(f"SET SESSION lock_wait_timeout = {_TRIAL_S}")
            yield connection
            transaction.rollback()

    @contextmanager
    def _connection(self, engine: Engine) -> Iterator[Connection]:
        from sqlalchemy.exc import SQLAlchemyError

        try:
            with engine.connect() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise self.error_of(error) from None
        finally:
            engine.dispose()

    def error_of(self, error: SQLAlchemyError, query: SentQuery | None = None) -> EdlError:
        """Return the error for what a connection has raised.

        Args:
            query: what was sent: the error shows the place of the mistake, if the driver tells it.
        """
        mark = ""
        if query is not None:
            mark = query.mark(getattr(error, "orig", None), dialect_of(self.backend))
        where = f"{self.shown}, {mark}" if mark else self.shown
        return database_error(error, where, self._hide)

    def _hide(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def explain(connection: Connection, statement: UpdateBase) -> None:
    """Have the database plan a statement: it checks privileges, but runs nothing.

    A statement that changes no rows would be no substitute: it waits for locks of rows, and runs
    triggers of statements, which may have effects that no rollback takes back.
    """
    compiled = statement.compile(connection, compile_kwargs={"literal_binds": True})
    connection.exec_driver_sql(f"EXPLAIN {compiled}")


def _abandon_rows(connection: Connection, driver: Any) -> None:
    """Close a connection of PyMySQL, which would first fetch all rows that are left.

    Args:
        driver: the connection as the driver has it, which a broken one no longer tells.
    """
    result = getattr(driver, "_result", None)
    if result is not None:
        result.unbuffered_active = False
    if not connection.invalidated:
        connection.invalidate()


def _parse(url: str) -> URL:
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise usage(
            "this is not the URL of a database",
            where=without_passwords(url),
            remedy=f"For example: {URL_EXAMPLES}",
        ) from None
    if "@" in (parsed.host or ""):
        raise usage(
            "the URL contains more than one @",
            where=without_passwords(url),
            remedy="Write an @ within a user name or password as %40.",
        )
    return parsed


def _backend(url: URL) -> str:
    name, _, driver = url.drivername.partition("+")
    known = _DRIVERS.get(name)
    if known is None or driver not in ("", known.partition("+")[2]):
        raise usage(
            f"{url.drivername} is not a kind of database that edl can connect to",
            where=without_passwords(str(url)),
            remedy=f"PostgreSQL, MariaDB, MySQL, SQLite or DuckDB: {URL_EXAMPLES}",
        )
    return known.partition("+")[0]


def _engine(
    url: URL, backend: str, *, read_only: bool, lock_timeout_s: int = _LOCK_TIMEOUT_S
) -> Engine:
    import sqlalchemy
    from sqlalchemy.dialects import registry
    from sqlalchemy.pool import NullPool

    dialect = _DRIVERS[backend]
    # What psycopg says of a connection that an error has ended would stand next to our message.
    logging.getLogger("psycopg").addHandler(logging.NullHandler())
    if backend == "sqlite":
        return _sqlite_engine(url, read_only, lock_timeout_s)
    if backend == "duckdb":
        registry.register(dialect, "edl_sql.databases.duckdb_dialect", "DuckDBDialect")
        return sqlalchemy.create_engine(url, poolclass=NullPool)
    return sqlalchemy.create_engine(
        url.set(drivername=dialect),
        poolclass=NullPool,
        connect_args=_arguments(url, backend),
        enable_from_linting=False,  # it knows nothing of the columns in a text such as a row's key
    )


def _arguments(url: URL, backend: str) -> dict[str, Any]:
    arguments: dict[str, Any] = {"connect_timeout": _CONNECT_TIMEOUT_S}
    own_settings = os.path.expanduser("~/.my.cnf")
    if backend == "postgresql":
        arguments["application_name"] = "edl"
    elif url.password is None and os.path.isfile(own_settings):
        arguments["read_default_file"] = own_settings
    return {name: value for name, value in arguments.items() if name not in url.query}


def _sqlite_engine(url: URL, read_only: bool, lock_timeout_s: int) -> Engine:
    import sqlalchemy
    from sqlalchemy.pool import NullPool

    file = user_path(url.database or "").absolute()
    if not file.is_file():
        raise EdlError(
            ErrorCode.DATA_NOT_FOUND,
            "the SQLite database file does not exist",
            where=str(file),
            remedy="Three slashes precede a relative path, four an absolute one: "
            "sqlite:///data/my.db",
        )
    place = f"file:{quote(str(file))}?mode={'ro' if read_only else 'rw'}"

    def connect() -> sqlite3.Connection:
        # Transactions begin where SQLAlchemy says, and not where the module guesses.
        return sqlite3.connect(place, uri=True, timeout=lock_timeout_s, isolation_level=None)

    engine = sqlalchemy.create_engine(
        "sqlite://", creator=connect, poolclass=NullPool, enable_from_linting=False
    )

    @sqlalchemy.event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")

    return engine


def _secrets(url: URL) -> list[str]:
    found = [url.password or ""]
    for name in _SECRETS:
        value = url.query.get(name, "")
        found += [value] if isinstance(value, str) else value
    spellings = {text for secret in found for text in (secret, quote(secret), quote_plus(secret))}
    return sorted(filter(None, spellings), key=len, reverse=True)


def _describe(url: URL) -> str:
    """Return the URL without password and parameters."""
    kind = _DRIVERS[url.drivername.partition("+")[0]].partition("+")[0]
    shown = url.create(kind, url.username, None, url.host, url.port, url.database)
    return shown.render_as_string()


def _first_line(file: str) -> str:
    try:
        with open_input(Path(file)) as text:
            is_open = may_be_read_by_others(text.fileno())
            found = text.readline(MAX_INPUT_BYTES).decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text"
        raise usage(
            f"the password's file cannot be read: {reason}",
            where=file,
            remedy="Its first line is the password.",
        ) from None
    if is_open:
        raise usage(
            "every user of this machine may read the password's file",
            where=file,
            remedy=f"chmod 600 {file}, and change the password if other users have accounts on this"
            " machine.",
        )
    if not found:
        raise usage(
            "the first line of the password's file is empty",
            where=file,
            remedy="Write the password there, and nothing else.",
        )
    return found
