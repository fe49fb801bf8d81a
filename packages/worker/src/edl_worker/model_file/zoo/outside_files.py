"""Finds the files that a model zoo's code reads while it is loaded, and code outside the zoo."""

from __future__ import annotations

import functools
import hashlib
import os
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from types import ModuleType
from typing import Any

from edl_runtime.model import outside_files
from edl_worker.core.layer_state import LayerState
from edl_worker.model_file.zoo.module_loaders import find_running_line

_OWN = frozenset(
    ("edl", "edl_proto", "edl_runtime", "edl_spans", "edl_worker", "elasticdl", "recordio")
)
"""Packages of edl itself; users may have others whose names begin like these."""


class OutsideFiles:
    """The files that the code of a zoo has read, and code that is not in its folder.

    Args:
        submitted: the folder that was submitted, if the zoo is a copy of it.
    """

    def __init__(self, submitted: Path | None = None) -> None:
        self._submitted = submitted
        self._lines: dict[str, str] = {}
        self._modules: dict[str, str] = {}
        self._began_ns = time.time_ns()

    def add(self, root: Path, named: Any) -> None:
        """Note that a file is read now, if the zoo's code reads it.

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
        if PurePath(path).is_relative_to(root):
            if _find_line():
                _read_inside.add(Path(path))
        elif outside_files.is_data(path) and (line := _find_line()):
            self._lines[path] = line

    def add_module(self, root: Path, name: str) -> None:
        """Note that the zoo's code imports a module, if its file lies outside ``root``."""
        path = _file_of(sys.modules.get(name))
        if path is None or path in self._modules or len(self._modules) == outside_files.MAX_FILES:
            return
        if outside_files.is_code_outside(path, root) and name.partition(".")[0] not in _OWN:
            self._modules[path] = _find_line()

    def describe(self) -> tuple[str, ...]:
        """Return a warning for each file, and for each module that the zoo itself imports."""
        files = self._lines | self._modules
        return tuple(
            outside_files.describe(path, line, self._submitted) for path, line in files.items()
        )

    def read(self, root: Path) -> tuple[LayerState, ...]:
        """Return a digest of each file, and of each module that came with those imported."""
        files = dict(self._lines)
        loaded = [path for it in list(sys.modules.values()) if (path := _file_of(it)) is not None]
        for path, line in self._modules.items():
            folder = _import_folder(path)
            files |= {
                each: line
                for each in sorted(loaded)
                if PurePath(each).is_relative_to(folder)
                and outside_files.is_code_outside(each, root)
            }
        return tuple(
            LayerState(f"file {path}", line, {"sha256": _digest(path)}, optional=True)
            for path, line in files.items()
        )


def describe_changes(found: Sequence[LayerState], saved: Sequence[LayerState]) -> tuple[str, ...]:
    """Return a warning for each file that is not as it was when a model was trained.

    Args:
        found: the present files, of ``OutsideFiles.read``.
        saved: the states of the trained model.
    """
    trained = {state.name: state.values for state in saved}
    return tuple(
        f"{state} has changed since the model was trained. The vocabularies and other saved state "
        "of layers come from the trained model; what else the model file takes from there does not."
        for state in found
        if trained.get(state.name, state.values) != state.values
    )


_noting: tuple[OutsideFiles, Path] | None = None
_read_inside: set[Path] = set()


def read_files() -> list[Path]:
    """Return the files of open zoos that their code has read when it was loaded."""
    return sorted(_read_inside)


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


def note_imported(name: str) -> None:
    """Note a module that is not of the zoo and that the zoo's code imports."""
    if _noting is not None:
        files, root = _noting
        files.add_module(root, name)


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


def _find_line() -> str:
    """Return the line of the zoo's code that is running, as ``file:number``; empty if none is."""
    line = find_running_line()
    return "" if line is None else f"{PurePath(line[0]).name}:{line[1]}"


def _file_of(module: ModuleType | None) -> str | None:
    file = getattr(module, "__file__", None)
    return os.path.abspath(file) if isinstance(file, str) else None


def _import_folder(path: str) -> PurePath:
    """Return the folder from which a module was imported, or the package that it belongs to."""
    folder = Path(path).parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def _digest(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return type(error).__name__
