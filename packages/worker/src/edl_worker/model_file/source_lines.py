"""Finds lines of a model file by reading its text, for values that do not know their place."""

from __future__ import annotations

import ast
import functools
from pathlib import Path


def find_line(file: str, name: str) -> int:
    """Return the last line that assigns a name at module level, or calls ``name(…)``.

    Args:
        name: such as ``loss`` or ``compile(loss=…)``, of which only ``compile`` is looked for.

    Returns:
        The line; 0 if there is none.
    """
    called, is_call, _ = name.partition("(")
    tree = _parse(file)
    if is_call:
        return max(
            (
                node.lineno
                for node in ast.walk(tree)
                if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == called
            ),
            default=0,
        )
    lines = [
        node.lineno
        for statement in tree.body
        if not isinstance(statement, ast.FunctionDef | ast.ClassDef)
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
    ]
    return max(lines, default=0)


def line_of_element(file: str, line: int, at: int, count: int) -> int:
    """Return the line of an element of a list, or the line of the call that the list is given to.

    Args:
        line: of the call.
        at: number of the element, from 0 on.
        count: of the elements that the list has.
    """
    for node in ast.walk(_parse(file)):
        if not isinstance(node, ast.Call) or not node.lineno <= line <= (node.end_lineno or 0):
            continue
        for given in (*node.args, *(each.value for each in node.keywords)):
            if isinstance(given, ast.List | ast.Tuple) and len(given.elts) == count:
                return given.elts[at].lineno
    return line


def find_unused_names(file: str) -> dict[str, int]:
    """Return the lines of the names that a module defines and does not use itself."""
    tree = _parse(file)
    defined: dict[str, int] = {}
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            defined[statement.name] = statement.lineno
        elif isinstance(statement, ast.Assign):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    defined[target.id] = statement.lineno
    used = {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    return {name: line for name, line in defined.items() if name not in used}


@functools.lru_cache(maxsize=16)
def _parse(file: str) -> ast.Module:
    try:
        return ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ast.Module([], [])
