"""Reads the end of a log, also while another process writes to it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from edl_proto.files import open_regular

_CHUNK = 256 << 10
_TAIL_BYTES = 256 << 10


class Tail:
    """Lines of a growing text file, each once.

    Args:
        path: the file; it need not exist yet.
        lines: how many lines of what is there already; None for all of them.
    """

    def __init__(self, path: Path, lines: int | None) -> None:
        self._path = path
        self._rest = b""
        self._offset = 0
        self._first: list[str] = []
        if lines is not None and path.exists():
            self._offset = path.stat().st_size
            self._first = tail(path, lines).splitlines()

    def read(self, final: bool = False) -> Iterator[str]:
        """Lines that have become whole since the last call.

        Args:
            final: nothing more will come; a last line without an end is given, too.
        """
        yield from self._first
        self._first = []
        while chunk := self._read_chunk():
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            for line in lines:
                yield line.decode(errors="replace").rstrip("\r")
        if final and self._rest:
            yield self._rest.decode(errors="replace")
            self._rest = b""

    def _read_chunk(self) -> bytes:
        try:
            with open_regular(self._path, follow=False) as file:
                file.seek(self._offset)
                chunk = file.read(_CHUNK)
        except OSError:
            return b""
        self._offset += len(chunk)
        return chunk


def tail(path: Path, lines: int) -> str:
    """The last lines of a text file; empty if there is none."""
    try:
        with open_regular(path, follow=False) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            content = file.read()
    except OSError:
        return ""
    text = content.decode(errors="replace").splitlines()
    return "\n".join(text[-lines:]) if lines else ""
