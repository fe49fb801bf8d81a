"""Reads a model file without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

# Calls by which a module may make names that its text does not show.
_MAKERS = frozenset(("globals", "setattr", "exec", "vars"))


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to read a dotted name: a module file of the zoo, and a name in it.

    ``attribute`` is empty when the name is the module itself.
    """

    module: tuple[str, ...]
    attribute: str

    @property
    def files(self) -> tuple[str, str]:
        """The files that the module may be, relative to the zoo."""
        path = "/".join(self.module)
        return f"{path}.py", f"{path}/__init__.py"


def candidates(model_def: str) -> tuple[Candidate, ...]:
    """Return how ``a.b.Name`` may be read, likeliest first: Name in a/b.py, or module a.b.Name.

    Empty if it is no dotted name.
    """
    parts = tuple(model_def.split("."))
    if not all(part.isidentifier() for part in parts):
        return ()
    whole = Candidate(parts, "")
    if len(parts) == 1:
        return (whole,)
    return Candidate(parts[:-1], parts[-1]), whole


@dataclass(frozen=True, slots=True)
class Definitions:
    """Names at the top of a module; ``complete`` if there can be no others."""

    names: frozenset[str]
    complete: bool

    def lacks(self, name: str) -> bool:
        return self.complete and name not in self.names


def definitions(source: str, filename: str) -> Definitions:
    """Return the names that a module defines.

    Raises:
        SyntaxError: the source is no Python.
        ValueError: the source has a NUL character.
    """
    tree = ast.parse(source, filename)
    names: set[str] = set()
    complete = True
    for statement in _top(tree.body):
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
                complete = complete and name != "__getattr__"
            case ast.ClassDef(name=name):
                names.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                for alias in aliases:
                    complete = complete and alias.name != "*"
                    names.add(alias.asname or alias.name.partition(".")[0])
    for node in _module_level(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.Call(func=ast.Name(id=name)) if name in _MAKERS:
                complete = False
    return Definitions(frozenset(names), complete)


def learns_label(source: str, name: str) -> bool:
    """Return whether a model needs labels: a class without says ``learns_label = False``.

    Raises:
        SyntaxError: the source is no Python.
        ValueError: the source has a NUL character.
    """
    found = _definition(source, name)
    for statement in getattr(found, "body", ()):
        match statement:
            case ast.Assign(targets=[ast.Name(id="learns_label")], value=ast.Constant(value=False)):
                return False
    return True


def takes_parameter(source: str, name: str, parameter: str) -> bool:
    """Return whether a model, a class or a function, has a parameter of this name.

    Raises:
        SyntaxError: the source is no Python.
        ValueError: the source has a NUL character.
    """
    found = _definition(source, name)
    if isinstance(found, ast.ClassDef):
        found = next(
            (
                each
                for each in found.body
                if isinstance(each, ast.FunctionDef) and each.name == "__init__"
            ),
            None,
        )
    if not isinstance(found, ast.FunctionDef):
        return False
    known = found.args
    return parameter in (each.arg for each in (*known.args, *known.kwonlyargs))


def _definition(source: str, name: str) -> ast.stmt | None:
    """Return the class or function of this name at the top of a module."""
    for statement in _top(ast.parse(source).body):
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)) and statement.name == name:
            return statement
    return None


def _top(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements of a module, those within ``if``, ``try``, ``with`` and loops included."""
    for statement in body:
        yield statement
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        for name in ("body", "orelse", "finalbody"):
            yield from _top(getattr(statement, name, []))
        for handler in getattr(statement, "handlers", []):
            yield from _top(handler.body)
        for case in getattr(statement, "cases", []):
            yield from _top(case.body)


def _module_level(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes that run when the module is imported; not the insides of functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        yield child
        yield from _module_level(child)
