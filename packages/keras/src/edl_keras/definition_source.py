"""The source of a class or function: of a script, a notebook's cell or inside another function."""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import symtable
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from edl_keras.errors import wrong_model

Defined = type | FunctionType
"""What has a definition: a class or a function of Python."""
_Node = ast.ClassDef | ast.FunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True)
class DefinitionSource:
    """The text that defines a class or function, and what else it needs.

    Attributes:
        name: that the text binds; empty for a lambda expression.
        text: begins at the left margin.
        place: file and line, for messages.
        needs: the global names that the text uses, without builtins.
        values: the values of all names that the text may use, where they are known.
    """

    name: str
    text: str
    place: str
    needs: tuple[str, ...]
    values: Mapping[str, Any]


def find_source(defined: Defined) -> DefinitionSource:
    """Return the source of a class or function.

    Raises:
        Problem: there is none, as for what was typed at the prompt of Python.
    """
    code = _code_of(defined)
    name = defined.__qualname__
    lines = linecache.getlines(code.co_filename, _globals_of(defined)) if code is not None else []
    node = _find_node("".join(lines), defined, code) if code is not None and lines else None
    if node is None or code is None:
        raise wrong_model(
            f"there is no source of {name}, so no other process can define it",
            "Define it in a script, a module or a cell of a notebook.",
            where=name,
        )
    text = _text_of(node, lines)
    is_lambda = isinstance(node, ast.Lambda)
    needs = _global_names(f"_ = {text}" if is_lambda else text)
    values = {**_globals_of(defined), **_enclosed_values(defined)}
    return DefinitionSource(
        "" if isinstance(node, ast.Lambda) else node.name,
        text,
        f"{code.co_filename}:{node.lineno}",
        tuple(sorted(name for name in needs if name in values or not hasattr(builtins, name))),
        values,
    )


def find_assignment(module: str, name: str, near: str) -> str | None:
    """Return the statement at the top level of a script that gives a name its value.

    Args:
        near: file and line of a definition that uses the name.
    """
    lines = linecache.getlines(near.rpartition(":")[0], vars(sys.modules.get(module)) or None)
    found = None
    for node in ast.parse("".join(lines)).body if lines else ():
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, ast.AnnAssign) and node.value is not None
            else []
        )
        if [ast.unparse(each) for each in targets] == [name]:
            found = node
    if found is None:
        return None
    return "".join(lines[found.lineno - 1 : found.end_lineno]).strip()


def find_needs(text: str) -> tuple[str, ...]:
    """Return the global names that statements use, without those that they bind, and builtins."""
    return tuple(sorted(name for name in _global_names(text) if not hasattr(builtins, name)))


def functions_of(defined: Defined) -> Iterator[FunctionType]:
    """Return the functions whose code belongs to a class, or the function itself."""
    if isinstance(defined, FunctionType):
        yield defined
        return
    for value in vars(defined).values():
        if isinstance(value, property):
            value = value.fget
        function = inspect.unwrap(getattr(value, "__func__", value))
        if isinstance(function, FunctionType) and function.__qualname__.startswith(
            f"{defined.__qualname__}."
        ):
            yield function


def _code_of(defined: Defined) -> CodeType | None:
    return next((each.__code__ for each in functions_of(defined)), None) or _code_of_module(defined)


def _code_of_module(defined: Defined) -> CodeType | None:
    """Return any code of the module of a class without functions, which names its file."""
    file = getattr(sys.modules.get(defined.__module__), "__file__", None) or _find_cell(defined)
    return compile("", file, "exec") if file else None


def _find_cell(defined: Defined) -> str | None:
    """Return the newest cell of a notebook that defines a class of this name."""
    for file in reversed(list(linecache.cache)):
        if "ipykernel" in file or file.startswith("<ipython"):
            for node in ast.parse("".join(linecache.getlines(file))).body:
                if isinstance(node, ast.ClassDef) and node.name == defined.__name__:
                    return file
    return None


def _globals_of(defined: Defined) -> dict[str, Any]:
    for function in functions_of(defined):
        return function.__globals__
    return vars(sys.modules[defined.__module__])


def _enclosed_values(defined: Defined) -> dict[str, Any]:
    """Return the variables of enclosing functions, and the classes that a class derives from."""
    found: dict[str, Any] = {}
    if isinstance(defined, type):
        found = {base.__name__: base for base in defined.__bases__ if "." in base.__qualname__}
    for function in functions_of(defined):
        for name, cell in zip(
            function.__code__.co_freevars, function.__closure__ or (), strict=True
        ):
            if name == "__class__":
                continue
            try:
                found[name] = cell.cell_contents
            except ValueError:  # it has no value yet
                continue
    return found


def _find_node(source: str, defined: Defined, code: CodeType) -> _Node | None:
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    if isinstance(defined, FunctionType) and defined.__name__ == "<lambda>":
        return _find_lambda(tree, code)
    wanted = [part for part in defined.__qualname__.split(".") if part != "<locals>"]
    found = [node for path, node in _definitions(tree, []) if path == wanted]
    if isinstance(defined, type):
        inside = [each for each in found if each.lineno <= code.co_firstlineno <= _end(each)]
        candidates = inside or found
        return candidates[-1] if candidates else None
    return next((each for each in found if _first_line(each) == code.co_firstlineno), None)


def _definitions(
    node: ast.AST, path: list[str]
) -> Iterator[tuple[list[str], ast.ClassDef | ast.FunctionDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef):
            inner = [*path, child.name]
            yield inner, child
            yield from _definitions(child, inner)
        else:
            yield from _definitions(child, path)


def _find_lambda(tree: ast.AST, code: CodeType) -> ast.Lambda | None:
    """Return the lambda expression that the code was made of: several may be on one line."""
    at = [
        (line, column)
        for line, _, column, _ in code.co_positions()
        if line is not None and column is not None and (line, column) != (code.co_firstlineno, 0)
    ]
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Lambda)
        and node.lineno == code.co_firstlineno
        and all(
            (node.body.lineno, node.body.col_offset) <= each <= (_end(node), node.end_col_offset)
            for each in at
        )
    ]
    return found[-1] if found else None


def _text_of(node: _Node, lines: list[str]) -> str:
    if isinstance(node, ast.Lambda):
        return ast.unparse(node)
    return textwrap.dedent("".join(lines[_first_line(node) - 1 : _end(node)])).rstrip()


def _first_line(node: ast.ClassDef | ast.FunctionDef) -> int:
    return min([node.lineno, *(each.lineno for each in node.decorator_list)])


def _end(node: ast.ClassDef | ast.FunctionDef | ast.Lambda) -> int:
    return node.end_lineno or node.lineno


def _global_names(text: str) -> set[str]:
    """Return the names that a text takes from its module, without those that it binds there."""
    found: set[str] = set()
    bound: set[str] = set()
    tables = [symtable.symtable(text, "<definition>", "exec")]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        is_module = table.get_type() == "module"
        for symbol in table.get_symbols():
            if is_module and (symbol.is_assigned() or symbol.is_imported()):
                bound.add(symbol.get_name())
            elif symbol.is_referenced() and (is_module or symbol.is_global()):
                found.add(symbol.get_name())
    return found - bound
