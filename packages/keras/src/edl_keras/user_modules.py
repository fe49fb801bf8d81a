"""The modules of a user that the code of a model needs: files that no package index has."""

from __future__ import annotations

import ast
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from types import ModuleType

_OWN = ("edl", "elasticdl", "recordio")
_INSTALLED = frozenset(("site-packages", "dist-packages"))


def is_main(module: str) -> bool:
    """Return whether a module is the script or the notebook that runs."""
    return module in ("__main__", "__mp_main__")


class UserModules:
    """The files of modules that travel with a model, with all that they import of the user's."""

    def __init__(self) -> None:
        self.files: dict[PurePosixPath, Path] = {}
        """The files by their places in a model zoo."""

    def add(self, name: str) -> None:
        """Add a module, its packages, and the user's modules that these import.

        Modules that are installed are left out.
        """
        parts = name.split(".")
        for length in range(1, len(parts) + 1):
            self._add_one(".".join(parts[:length]))

    def _add_one(self, name: str) -> None:
        file = None if is_main(name) else _file_of(name)
        if file is None or not _is_of_user(name, file):
            return
        place = PurePosixPath(*name.split("."))
        place = place / file.name if file.name == "__init__.py" else place.with_suffix(".py")
        if place in self.files:
            return
        self.files[place] = file
        package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        for imported in _imports(file, package):
            self.add(imported)


def _file_of(name: str) -> Path | None:
    module: ModuleType | None = sys.modules.get(name)
    if module is not None:
        origin = getattr(module, "__file__", None)
    else:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, AttributeError, ValueError):
            return None
        origin = spec.origin if spec is not None else None
    if not origin or not origin.endswith(".py"):
        return None
    path = Path(origin).resolve()
    return path if path.is_file() else None


def _is_of_user(name: str, file: Path) -> bool:
    top = name.partition(".")[0]
    if top in _OWN or top.startswith("edl_") or _INSTALLED & set(file.parts):
        return False
    return not any(
        file.is_relative_to(sysconfig.get_path(kind)) for kind in ("stdlib", "platstdlib")
    )


def _imports(file: Path, package: str) -> Iterator[str]:
    """Return the names of all modules that a file may import, wherever it does so."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, *([base] if base else [])])
            if base:
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")
