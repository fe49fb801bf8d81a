"""Reads the end of a log, also while another process writes to it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from edl_runtime.files import open_regular

_CHUNK = 256 << 10
_MAX_LINE_BYTES = 1 << 20
"""A longer line is given in parts, as a process may write without ever ending a line."""


class Tail:
    """Lines of a growing text file, each once.

    Args:
        path: the file; it need not exist yet.
        lines: how many lines of what is there already; None for all of them.
    """

    def __init__(self, path: Path, lines: int | None) -> None:
        self._path = path
        self._rest = b""
        self._offset = 0 if lines is None else _start(path, lines)

    def read(self, final: bool = False) -> Iterator[str]:
        """Yield lines that have become whole since the last call.

        Args:
            final: nothing more will come; a last line without an end is given, too.
        """
        while chunk := self._read_chunk():
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            for line in lines:
                yield line.decode(errors="replace").rstrip("\r")
            if len(self._rest) >= _MAX_LINE_BYTES:
                yield self._rest.decode(errors="replace")
                self._rest = b""
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


def _start(path: Path, lines: int) -> int:
    """Return where the last lines of a file begin; 0 if there is none."""
    try:
        with open_regular(path, follow=False) as file:
            end = file.seek(0, os.SEEK_END)
            if lines == 0:
                return end
            # A line end as the last byte begins no line.
            end = max(0, end - 1)
            while end > 0:
                begin = max(0, end - _CHUNK)
                file.seek(begin)
                chunk = file.read(end - begin)
                at = len(chunk)
                while (at := chunk.rfind(b"\n", 0, at)) >= 0:
                    lines -= 1
                    if lines == 0:
                        return begin + at + 1
                end = begin
    except OSError:
        pass
    return 0


def tail(path: Path, lines: int) -> str:
    """Return the last lines of a text file, at most 256 KiB; empty if there is no file."""
    try:
        with open_regular(path, follow=False) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _CHUNK))
            content = file.read(_CHUNK)
    except OSError:
        return ""
    text = content.decode(errors="replace").splitlines()
    return "\n".join(text[-lines:]) if lines else ""
