"""The origin of records: files, or the query of a database."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from edl.plugins import PlugIns
from edl.plugins.errors import usage
from edl_convert.file_formats import open_source
from edl_convert.formats import SourceFormat
from edl_convert.source import ConversionOptions, ExampleSource
from edl_runtime.public_settings import without_passwords

_EXAMPLE = "edl data convert --from postgresql://me@host/db --query 'SELECT …' --to data"
_DATABASE_URL = re.compile(r"(postgres(ql)?|mysql|mariadb|sqlite|duckdb)(\+\w+)?://", re.IGNORECASE)

QueryReader = Callable[[str, str, str, ConversionOptions], AbstractContextManager[ExampleSource]]
"""Opens the records of a query: URL of the database, password file, query and options."""

QUERIES: PlugIns[QueryReader] = PlugIns(
    "edl.queries",
    "reader of queries",
    Callable,  # type: ignore[arg-type]  # a special form, which isinstance takes all the same
    {"database": "edl-sql"},
)


@dataclass(frozen=True, slots=True)
class Origin:
    """The data that ``edl data convert`` is told to read.

    Attributes:
        files: paths and patterns; none for a database.
        form: of the files; None for the one that they seem to have.
        database: its URL; empty for files.
        query: the SELECT.
        password_file: of the database.
    """

    files: tuple[str, ...] = ()
    form: SourceFormat | None = None
    database: str = ""
    query: str = ""
    password_file: str = ""


@contextmanager
def open_origin(origin: Origin, options: ConversionOptions) -> Iterator[ExampleSource]:
    """Yield the records, which can be read within the context.

    Raises:
        EdlError, Problem: there are none, or the options contradict each other.
    """
    if not origin.database:
        yield _files(origin, options)
        return
    if origin.files or origin.form or options.delimiter:
        raise usage(
            "--from names a database; files, --format and --delimiter do not apply to it",
            where="--from",
            remedy=_EXAMPLE,
        )
    if not origin.query:
        raise usage("--from needs --query", where="--query", remedy=_EXAMPLE)
    open_query = QUERIES["database"]
    with open_query(origin.database, origin.password_file, origin.query, options) as source:
        yield source


def _files(origin: Origin, options: ConversionOptions) -> ExampleSource:
    database = next(filter(_DATABASE_URL.match, origin.files), None)
    if database is not None:
        raise usage(
            "a database is named with --from",
            where=without_passwords(database),
            remedy=_EXAMPLE,
        )
    if not origin.files:
        raise usage("name files to convert", where="SRC", remedy=f"Or a database: {_EXAMPLE}")
    if origin.query or origin.password_file:
        raise usage(
            "--query and --password-file need a database, which --from names",
            where="--query" if origin.query else "--password-file",
            remedy=_EXAMPLE,
        )
    return open_source(origin.files, origin.form, options)
