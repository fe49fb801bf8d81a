"""Parameters of models: ``hidden_units=[10, 5], lr=0.1``, parsed and never evaluated."""

from __future__ import annotations

import ast
import cmath
from typing import Any, TypeGuard

_CALL = "dict("
_MEANT = {"true": "True", "false": "False", "null": "None", "none": "None"}
_NOT_FINITE = frozenset(("nan", "inf", "infinity"))


class ParamsError(ValueError):
    """The text does not contain valid parameters.

    Args:
        what: one sentence without a full stop.
        column: where in the text, from 1; 0 if it is not known.
    """

    def __init__(self, what: str, column: int = 0) -> None:
        super().__init__(what)
        self.column = max(column, 0)


def parse_params(text: str) -> dict[str, Any]:
    """Parse the parameters in ``text``, by name, in their order.

    Values are Python literals: finite numbers, strings, booleans, None, and lists, tuples, sets
    and dictionaries of them.

    Raises:
        ParamsError: the text is something else.
    """
    if not text.strip():
        return {}
    # Only as the arguments of a call is "a=1, b=[2, 3]" Python; nothing of it is run.
    source = f"{_CALL}{text}\n)"
    try:
        call = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        column = (getattr(error, "offset", None) or 0) - len(_CALL)
        near = f" near {text[max(0, column - 4) :][:20]!r}" if column > 0 else ""
        raise ParamsError(f"expected name=value, name=value{near}", column) from None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise ParamsError("expected name=value, name=value")
    if call.args:
        raise _nameless_error(call.args[0])
    values: dict[str, Any] = {}
    for keyword in call.keywords:
        column = _column(keyword.value)
        if keyword.arg is None:
            shown = ast.unparse(keyword.value)
            raise ParamsError(f"**{shown} is not of the form name=value", column)
        if keyword.arg in values:
            raise ParamsError(f"{keyword.arg} appears twice", column)
        for node in filter(_is_not_finite, ast.walk(keyword.value)):
            written = ast.get_source_segment(source, node)
            raise ParamsError(
                f"the value of {keyword.arg} is not finite: {written}; write a finite number",
                _column(node),
            )
        try:
            values[keyword.arg] = ast.literal_eval(keyword.value)
        except (ValueError, TypeError, SyntaxError, RecursionError):
            shown = ast.unparse(keyword.value)
            hint = _MEANT.get(shown, repr(shown))
            raise ParamsError(
                f"the value of {keyword.arg} is not a literal: {shown}; write {hint}", column
            ) from None
    return values


def format_params(values: dict[str, object]) -> str:
    """Return the text that ``parse_params`` parses into ``values``."""
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def find_abbreviation(name: str, known: list[str]) -> list[str]:
    """Return what ``name`` abbreviates, or its abbreviation, as ``lr`` and ``learning_rate``."""

    def initials(word: str) -> str:
        return "".join(part[0] for part in word.split("_") if part)

    return [other for other in known if initials(other) == name or initials(name) == other]


def _is_not_finite(node: ast.AST) -> TypeGuard[ast.expr]:
    """Tell whether a text means infinity or NaN, in any of the ways to write these."""
    match node:
        case ast.Constant(value=float() | complex() as number):
            return not cmath.isfinite(number)
        case (
            ast.Name(id=word)
            | ast.Attribute(attr=word)
            | ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=str(word))])
        ):
            return word.lower().lstrip("+-") in _NOT_FINITE
        case _:
            return False


def _nameless_error(value: ast.expr) -> ParamsError:
    """Return the error of a value without a name, such as a dictionary of JSON."""
    written = ast.unparse(value)
    if isinstance(value, ast.Dict) and value.keys and all(map(_is_name, value.keys)):
        pairs = zip(value.keys, value.values, strict=True)
        meant = ", ".join(f"{ast.literal_eval(k)}={ast.unparse(v)}" for k, v in pairs if k)
        return ParamsError(f"{written} is a dictionary; write {meant}", _column(value))
    return ParamsError(f"{written} has no name; write name=value", _column(value))


def _is_name(key: ast.expr | None) -> bool:
    return isinstance(key, ast.Constant) and str(key.value).isidentifier()


def _column(node: ast.expr) -> int:
    return node.col_offset - len(_CALL) + 1
