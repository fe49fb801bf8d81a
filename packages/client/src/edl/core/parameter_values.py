"""Checks values against the types of a model file's parameters, as far as its source shows them."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

_SEQUENCES = ("list", "tuple", "Sequence", "Iterable", "Collection")
_MAPPINGS = ("dict", "Mapping")
_PLAIN: dict[str, tuple[tuple[type, ...], str]] = {
    "int": ((int,), "an integer"),
    "float": ((int, float), "a number"),
    "str": ((str,), "a text"),
    "bool": ((bool,), "true or false"),
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of one function.

    Attributes:
        annotation: its declared type; None without one.
        default: what it is without a value; None if it needs one.
    """

    annotation: ast.expr | None
    default: ast.expr | None

    def takes(self, value: object) -> bool:
        """Return whether the parameter takes a value: True unless its annotation forbids it."""
        if self.annotation is not None:
            return _accepts(self.annotation, value)
        # Layers of Keras take a number for a list of equal numbers, and the other way round.
        is_number_or_list = isinstance(_constant(self.default), int | float | list | tuple)
        return not (is_number_or_list and isinstance(value, str | dict))

    @property
    def expected(self) -> str:
        """The values that the parameter takes, in words."""
        if self.annotation is not None:
            return _describe(self.annotation)
        return "a list" if isinstance(_constant(self.default), list | tuple) else "a number"


def parameters_of(function: ast.FunctionDef) -> Iterable[tuple[str, Parameter]]:
    """Yield all named parameters of a function."""
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    without = len(positional) - len(given.defaults)
    defaults: list[ast.expr | None] = [*[None] * without, *given.defaults]
    for each, default in zip(positional, defaults, strict=True):
        yield each.arg, Parameter(each.annotation, default)
    for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield each.arg, Parameter(each.annotation, default)


def _constant(node: ast.expr | None) -> object:
    try:
        return ast.literal_eval(node) if node is not None else None
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


def _accepts(node: ast.expr, value: object) -> bool:
    """Return whether a value is of an annotated type; True for types that are not known here."""
    match node:
        case ast.Constant(value=None):
            return value is None
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _accepts(left, value) or _accepts(right, value)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            if name in _PLAIN:
                return isinstance(value, _PLAIN[name][0])
            return _is_of(name, value)
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name), slice=inner):
            if name == "Optional":
                return value is None or _accepts(inner, value)
            item = _item(name, inner)
            items = value if isinstance(value, list | tuple) else ()
            return _is_of(name, value) and (item is None or all(_accepts(item, x) for x in items))
        case _:
            return True


def _is_of(name: str, value: object) -> bool:
    if name in _SEQUENCES:
        return isinstance(value, list | tuple)
    return isinstance(value, dict) if name in _MAPPINGS else True


def _item(name: str, inner: ast.expr) -> ast.expr | None:
    """Return the type of each item of a list; None if there is not one for all."""
    if name not in _SEQUENCES:
        return None
    match inner:
        case ast.Tuple(elts=[first, ast.Constant(value=value)]) if value is ...:
            return first
        case ast.Tuple():
            return None
        case _:
            return inner


def _describe(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=None):
            return "null"
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return f"{_describe(left)} or {_describe(right)}"
        case ast.Name(id=name) | ast.Attribute(attr=name) if name in _PLAIN:
            return _PLAIN[name][1]
        case ast.Subscript(value=ast.Name(id="Optional"), slice=inner):
            return f"{_describe(inner)} or null"
        case ast.Subscript(value=ast.Name(id=name), slice=inner) if name in _SEQUENCES:
            item = _item(name, inner)
            plain = item.id if isinstance(item, ast.Name) else ""
            many = {"int": " of integers", "float": " of numbers", "str": " of texts"}
            return f"a list{many.get(plain, '')}"
        case ast.Name(id=name) if name in _SEQUENCES:
            return "a list"
        case _:
            return ast.unparse(node)
