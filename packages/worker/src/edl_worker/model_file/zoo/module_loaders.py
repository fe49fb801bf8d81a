"""Loaders of the modules of a model zoo: of its files, and of folders without ``__init__.py``."""

from __future__ import annotations

import builtins
import functools
import sys
from collections.abc import Callable
from importlib.abc import Loader
from importlib.machinery import SourceFileLoader
from types import CodeType, FrameType, ModuleType


class ZooModuleLoader(SourceFileLoader):
    """A loader of a zoo file whose ``import`` finds the zoo's modules.

    Args:
        import_for: ``builtins.__import__`` for a module and its package, the first two arguments.
        dotted: the module's name in the zoo, whatever name it is imported under.
    """

    def __init__(
        self,
        fullname: str,
        path: str,
        import_for: Callable[..., ModuleType],
        dotted: str,
        is_package: bool,
    ) -> None:
        super().__init__(fullname, path)
        self._import_for = import_for
        self._dotted = dotted
        self._package = dotted if is_package else dotted.rpartition(".")[0]

    def get_code(self, fullname: str) -> CodeType | None:
        # No byte code is read or written: a zoo may be read-only, and two edits within a second
        # may leave the file's modification time unchanged.
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__builtins__"] = {
            **vars(builtins),
            "__import__": functools.partial(self._import_for, self._dotted, self._package),
        }
        super().exec_module(module)


class FolderLoader(Loader):
    """A folder without ``__init__.py``: a package without code."""

    def exec_module(self, module: ModuleType) -> None:
        pass


def find_running_line(through: tuple[str, ...] = ()) -> tuple[str, int] | None:
    """Return file and line of the zoo's code that is running; None if none is.

    Args:
        through: how the modules are called that this code may have called; none: any.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if isinstance(frame.f_globals.get("__loader__"), ZooModuleLoader):
            return frame.f_code.co_filename, frame.f_lineno
        if through and not str(frame.f_globals.get("__name__")).startswith(through):
            return None
        frame = frame.f_back
    return None
