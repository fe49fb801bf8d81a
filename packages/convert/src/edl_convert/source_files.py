"""Files to convert or to load: of this machine, or of a store, where ranges are read as needed."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TextIO

import recordio
from edl.plugins.data import data_files, scheme
from recordio.storage.files import reading

_BUFFER = 1 << 20


@contextmanager
def open_bytes(file: str) -> Iterator[IO[bytes]]:
    """Yield an open file that supports seeking.

    Raises:
        OSError: it cannot be opened on this machine.
        EdlError: the store does not give it, also from within the context.
    """
    if not scheme(file):
        with open(file, "rb") as content:
            yield content
        return
    try:
        with reading(file) as (stored, _):
            yield stored
    except recordio.RecordError as error:
        raise data_files.record_error(error, file) from None


@contextmanager
def open_text(file: str, errors: str = "strict") -> Iterator[TextIO]:
    """Open a file as UTF-8 text, with its own line endings."""
    with open_bytes(file) as content:
        buffered = io.BufferedReader(content, _BUFFER) if scheme(file) else content  # type: ignore[type-var]  # only its readinto is called
        with io.TextIOWrapper(buffered, encoding="utf-8-sig", errors=errors, newline="") as text:
            yield text


def size(file: str) -> int:
    """Return the size of a file in bytes; the errors are those of ``open_bytes``."""
    with open_bytes(file) as content:
        return content.seek(0, io.SEEK_END)
