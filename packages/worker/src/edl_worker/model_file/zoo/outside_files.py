"""Finds the files outside a model zoo that its code reads while it is loaded."""

from __future__ import annotations

import functools
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any

from edl_runtime.model import outside_files
from edl_worker.model_file.zoo.module_loaders import find_running_line


class OutsideFiles:
    """The files that the code of a zoo has read and that are not in its folder.

    Args:
        submitted: the folder that was submitted, if the zoo is a copy of it.
    """

    def __init__(self, submitted: Path | None = None) -> None:
        self._submitted = submitted
        self._lines: dict[str, str] = {}
        self._began_ns = time.time_ns()

    def add(self, root: Path, named: Any) -> None:
        """Note that a file is read now, if the zoo's code reads it and it lies outside ``root``.

        Args:
            root: folder of the zoo.
            named: what was opened; no path: it is ignored.
        """
        try:
            path = os.path.abspath(os.fsdecode(named))
            found = os.stat(path)
        except (OSError, TypeError, ValueError):
            return
        # What is newer was made by the code itself.
        if not stat.S_ISREG(found.st_mode) or found.st_ctime_ns > self._began_ns:
            return
        if path in self._lines or len(self._lines) == outside_files.MAX_FILES:
            return
        if not outside_files.is_outside(path, root):
            return
        line = find_running_line()
        if line is not None:
            self._lines[path] = f"{PurePath(line[0]).name}:{line[1]}"

    def describe(self) -> tuple[str, ...]:
        """Return a warning for each file."""
        return tuple(
            outside_files.describe(path, line, self._submitted)
            for path, line in self._lines.items()
        )


_noting: tuple[OutsideFiles, Path] | None = None


@contextmanager
def note_outside_files(files: OutsideFiles, model_zoo: str) -> Iterator[None]:
    """Note the files that Python opens while the context lasts."""
    global _noting
    _listen()
    before, _noting = _noting, (files, Path(model_zoo).expanduser().resolve())
    try:
        yield
    finally:
        _noting = before


def note_opened(named: Any) -> None:
    """Note files that something else than Python's ``open`` reads; a path, or a list of them."""
    if _noting is not None:
        files, root = _noting
        for each in named if isinstance(named, list | tuple) else (named,):
            files.add(root, each)


@functools.cache
def _listen() -> None:
    """Have Python tell of each file that it opens, once in a process: a hook stays forever."""

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and _noting is not None and not isinstance(arguments[0], int):
            path, mode, flags = arguments
            writes = set(mode) & set("wax+") if mode else flags & (os.O_WRONLY | os.O_RDWR)
            if not writes:
                note_opened(path)

    sys.addaudithook(hear)
