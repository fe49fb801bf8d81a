"""Folders of a model zoo without ``__init__.py``: ``fintech.Model`` is in one of their files."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path


def places_of(zoo: Path, dotted: str) -> list[str]:
    """Find where a name of a folder is defined: ``fintech.models.Model`` for ``fintech.Model``.

    Nothing of the zoo is executed; names that a file imports are not its own.

    Returns:
        The full names; none if the name is of no such folder, or is itself a module.
    """
    parts = dotted.split(".")
    name, folder = parts[-1], zoo.joinpath(*parts[:-1])
    is_folder = len(parts) > 1 and folder.is_dir() and not (folder / "__init__.py").exists()
    if not is_folder or folder.with_name(f"{folder.name}.py").exists():
        return []
    if (folder / f"{name}.py").exists() or (folder / name).is_dir():
        return []
    files = sorted(path for path in folder.glob("*.py") if name in _definitions(path))
    return [".".join([*parts[:-1], path.stem, name]) for path in files]


def _definitions(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
