"""The record of what workers did when, on disk: lines of JSON in two files of bounded size."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from edl_runtime.local import job_directory

MAX_NBYTES = 32 << 20
"""The size of a file at which it is rotated: it replaces the former one."""


class TimelineFile:
    """The files of one job; one thread writes, others may read.

    Args:
        directory: of the job. Nothing is made before the first line.
        max_nbytes: of one of both files.
    """

    def __init__(self, directory: Path, max_nbytes: int = MAX_NBYTES) -> None:
        self._path = directory / job_directory.TIMELINE
        self._former = directory / job_directory.FORMER_TIMELINE
        self._max_nbytes = max_nbytes

    def append(self, lines: str) -> None:
        """Add whole lines.

        Raises:
            OSError: they are not all there; a torn last line is ended by the next call.
        """
        with self._path.open("a+b") as file:
            size = file.seek(0, os.SEEK_END)
            if size:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # a master was killed, or the disk was full
                    file.write(b"\n")
            file.write(lines.encode())
        if size + len(lines) >= self._max_nbytes:
            self._path.replace(self._former)

    def chunks(self, nbytes: int = 256 << 10) -> Iterator[bytes]:
        """Yield all whole lines, oldest first, in chunks of about ``nbytes`` bytes."""
        opened = []
        try:
            # Open both, the present one first, as it may be rotated at any moment.
            for path in (self._path, self._former):
                try:
                    opened.append(path.open("rb"))
                except FileNotFoundError:
                    continue
            if len(opened) == 2 and os.path.sameopenfile(*(file.fileno() for file in opened)):
                opened.pop().close()
            for file in reversed(opened):
                rest = b""
                while content := file.read(nbytes):
                    content = rest + content
                    end = content.rfind(b"\n") + 1
                    rest = content[end:]
                    if end:
                        yield content[:end]
        finally:
            for file in opened:
                file.close()
