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
    return _flag(source, name, "learns_label", otherwise=True)


def learns_whole_epochs(source: str, name: str) -> bool:
    """Return whether a model needs all records at once: it says ``learns_whole_epochs = True``.

    Raises:
        SyntaxError: the source is no Python.
        ValueError: the source has a NUL character.
    """
    return _flag(source, name, "learns_whole_epochs", otherwise=False)


def _flag(source: str, name: str, flag: str, *, otherwise: bool) -> bool:
    """Return what a class or a base of it says."""
    for definition in _with_bases(source, name):
        for statement in getattr(definition, "body", ()):
            match statement:
                case ast.Assign(
                    targets=[ast.Name(id=target)], value=ast.Constant(value=bool(value))
                ) if target == flag:
                    return value
    return otherwise


def takes_parameter(source: str, name: str, parameter: str) -> bool:
    """Return whether a model, a class or a function, has a parameter of this name.

    Raises:
        SyntaxError: the source is no Python.
        ValueError: the source has a NUL character.
    """
    for found in _with_bases(source, name):
        functions = found.body if isinstance(found, ast.ClassDef) else [found]
        for each in functions:
            if isinstance(each, ast.FunctionDef) and each.name in ("__init__", name):
                known = each.args
                return parameter in (one.arg for one in (*known.args, *known.kwonlyargs))
    return False


def _with_bases(source: str, name: str) -> Iterator[ast.ClassDef | ast.FunctionDef]:
    """Yield a class or function at the top of a module, and the bases that the module defines."""
    top = _top(ast.parse(source).body)
    known = {each.name: each for each in top if isinstance(each, ast.ClassDef | ast.FunctionDef)}
    waiting = [name]
    while waiting:
        found = known.pop(waiting.pop(0), None)
        if found is not None:
            yield found
            bases = found.bases if isinstance(found, ast.ClassDef) else ()
            waiting += [base.id for base in bases if isinstance(base, ast.Name)]


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
