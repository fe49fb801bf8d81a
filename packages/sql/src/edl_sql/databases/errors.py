"""Errors of databases and their drivers, in words for the user."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edl_proto.errors import EdlError, ErrorCode


class DatabaseUnreachable(EdlError):
    """Raised when the database cannot be reached, or has closed the connection."""


class DatabaseLocked(EdlError):
    """Raised while another transaction holds a lock that is needed."""


@dataclass(frozen=True, slots=True)
class _ErrorClass:
    """A class of errors, and what it means to the user.

    Attributes:
        signs: SQLSTATEs of PostgreSQL, numbers of MariaDB and MySQL.
        words: pattern of messages, for drivers that give no number.
        raises: the exception.
    """

    code: ErrorCode.ValueType
    what: str
    remedy: str
    signs: frozenset[str | int]
    words: str = ""
    raises: type[EdlError] = EdlError


_ERROR_CLASSES = (
    _ErrorClass(
        ErrorCode.FORBIDDEN,
        "the database rejected the user name or password",
        "Give the password with --password-file, EDL_DATABASE_PASSWORD, or as the driver expects "
        "it (~/.pgpass, ~/.my.cnf).",
        frozenset({"28P01", "28000", 1045, 1698}),
        r"password authentication failed|no password supplied|role \".*\" does not exist",
    ),
    _ErrorClass(
        ErrorCode.FORBIDDEN,
        "this user lacks a required privilege",
        "Ask the database's administrator for it: GRANT … ON … TO …",
        frozenset({"42501", 1044, 1142, 1143, 1227}),
    ),
    _ErrorClass(
        ErrorCode.DATA_NOT_FOUND,
        "there is no such database",
        "The name of the database is the last part of the URL.",
        frozenset({"3D000", 1049}),
        r"database \".*\" does not exist",
    ),
    _ErrorClass(
        ErrorCode.DATA_NOT_FOUND,
        "there is no such table",
        "Check its name, and its schema if it has one: schema.table; or the names of files.",
        frozenset({"42P01", "3F000", 1146}),
        r"no such table|Table with name .* does not exist|No files found that match",
    ),
    _ErrorClass(
        ErrorCode.USAGE,
        "there is no such column",
        "Correct its name in the query.",
        frozenset({"42703", 1054}),
        r"no such column|Referenced column .* not found",
    ),
    _ErrorClass(
        ErrorCode.USAGE,
        "the connection is read-only, and the statement writes",
        "The query must be a SELECT.",
        frozenset({"25006", 1792}),
        r"readonly database",
    ),
    _ErrorClass(
        ErrorCode.USAGE,
        "the database cannot parse the query",
        "Try it in the database's own shell: psql, mariadb, sqlite3 or duckdb.",
        frozenset({"42601", 1064}),
        r"syntax error|incomplete input|unrecognized token",
    ),
    _ErrorClass(
        ErrorCode.DATA_UNREADABLE,
        "the file is not an SQLite database",
        "Check its name.",
        frozenset(),
        r"file is not a database",
    ),
    _ErrorClass(
        ErrorCode.DATA_UNREADABLE,
        "another transaction has locked it",
        "Wait for the other transaction, or end it; then try again.",
        frozenset({"55P03", "40P01", "40001", 1205, 1213}),
        r"database (table )?is locked",
        raises=DatabaseLocked,
    ),
    _ErrorClass(
        ErrorCode.DATA_UNREADABLE,
        "the database cannot be reached, or has closed the connection",
        "Check host and port of the URL, and that the server runs; then try again.",
        frozenset({"57P01", "57P02", "57P03", "08006", 2002, 2003, 2006, 2013}),
        r"connection.*(failed|refused|lost|closed|reset)|server closed|could not translate host"
        r"|failed to resolve|terminat\w+ connection|can't connect",
        raises=DatabaseUnreachable,
    ),
)


def database_error(error: Exception, where: str, hide: Callable[[str], str]) -> EdlError:
    """Return the error for what SQLAlchemy raised.

    Args:
        where: the database.
        hide: takes passwords out of a text.
    """
    original: Any = getattr(error, "orig", None) or error
    text = hide(_sentence(original))
    sign = _sign(original)
    for error_class in _ERROR_CLASSES:
        by_words = sign is None and error_class.words and re.search(error_class.words, text, re.I)
        if sign in error_class.signs or by_words:
            return error_class.raises(
                error_class.code,
                f"{error_class.what}: {text}",
                where=where,
                remedy=error_class.remedy,
            )
    return EdlError(
        ErrorCode.DATA_UNREADABLE,
        f"the database reports: {text}",
        where=where,
        remedy="Correct the query.",
    )


def _sign(error: Any) -> str | int | None:
    arguments: tuple[Any, ...] = getattr(error, "args", ())
    if len(arguments) > 1 and isinstance(arguments[0], int):
        return arguments[0]
    state = getattr(error, "sqlstate", None)
    return state if isinstance(state, str) else None


def _sentence(error: Any) -> str:
    """Return the first line of a driver's message, without an error number before it."""
    arguments: tuple[Any, ...] = getattr(error, "args", ())
    text = str(arguments[1]) if len(arguments) > 1 else str(error)
    return (text.strip().splitlines() or [type(error).__name__])[0].rstrip(".")
