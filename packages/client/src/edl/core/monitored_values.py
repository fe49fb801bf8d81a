"""Finds callbacks that monitor validation data, in the text of a model file."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_CALLBACKS = "callbacks"
_KINDS = ("EarlyStopping", "ReduceLROnPlateau")
_DEFAULT = "val_loss"


def find_validation_monitor(source: str) -> tuple[int, str, str] | None:
    """Return line, class and value of a callback that monitors validation data; None without one.

    A function with a condition may leave the callback out, and is not judged.

    Raises:
        SyntaxError: the source is no Python.
        ValueError: the source has a NUL character.
    """
    for definition in ast.parse(source).body:
        for node in _calls(definition):
            kind = ast.unparse(node.func).rpartition(".")[2]
            given = [each.value for each in node.keywords if each.arg == "monitor"]
            monitored = next(iter([*given, *node.args]), ast.Constant(_DEFAULT))
            is_open = any(each.arg is None for each in node.keywords)
            match monitored:
                case ast.Constant(value=str(name)) if kind in _KINDS and not is_open:
                    if name.startswith("val_"):
                        return node.lineno, kind, name
    return None


def _calls(definition: ast.stmt) -> Iterator[ast.Call]:
    """Yield the calls of what defines the callbacks; none of other definitions."""
    match definition:
        case ast.FunctionDef(name=name) if name == _CALLBACKS:
            pass
        case ast.Assign(targets=[ast.Name(id=name)]) if name == _CALLBACKS:
            pass
        case _:
            return
    nodes = list(ast.walk(definition))
    if not any(isinstance(node, ast.If | ast.IfExp | ast.BoolOp) for node in nodes):
        yield from (node for node in nodes if isinstance(node, ast.Call))
