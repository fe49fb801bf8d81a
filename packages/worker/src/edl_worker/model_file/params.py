"""``--params``: names and Python literals, which are never evaluated."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from edl_proto.errors import EdlError, ErrorCode

_EXAMPLE = '--params="hidden_units=[10, 100, 20, 5], learning_rate=0.01"'


def parse_params(text: str) -> dict[str, Any]:
    """The parameters by name.

    Args:
        text: ``name=literal, name=literal``; numbers, strings, lists, tuples, dicts, sets,
            booleans, None.

    Raises:
        EdlError: USAGE, with the text and the column.
    """
    if not text.strip():
        return {}
    head = "dict("
    try:
        call = ast.parse(f"{head}{text}\n)", mode="eval").body
    except SyntaxError as error:
        column = max(1, (error.offset or 0) - len(head))
        raise _unreadable(text, error.msg, column) from None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise _unreadable(text, "it is not a list of name=value", 1)
    if call.args:
        column = call.args[0].col_offset - len(head) + 1
        raise _unreadable(text, f"{ast.unparse(call.args[0])} has no name", column)
    values: dict[str, Any] = {}
    for keyword in call.keywords:
        column = keyword.value.col_offset - len(head) + 1
        if keyword.arg is None:
            raise _unreadable(text, "** is not supported", column)
        if keyword.arg in values:
            raise _unreadable(text, f"{keyword.arg} is repeated", column)
        try:
            values[keyword.arg] = ast.literal_eval(keyword.value)
        except ValueError:
            shown = ast.unparse(keyword.value)
            hint = {"true": "True", "false": "False", "null": "None", "none": "None"}.get(
                shown, repr(shown)
            )
            raise _unreadable(
                text, f"the value of {keyword.arg} is not a literal: {shown}; write {hint}", column
            ) from None
    return values


def _unreadable(text: str, what: str, column: int) -> EdlError:
    return EdlError(
        ErrorCode.USAGE,
        f"--params cannot be read: {what}",
        where=f'--params="{text}", column {column}',
        remedy=f"Write names and Python literals, for example {_EXAMPLE}",
    )


def unknown_parameter(name: str, takers: Mapping[str, Iterable[str]]) -> EdlError:
    """The error for a parameter that nothing takes.

    Args:
        takers: signature of each definition to the names that it takes.
    """
    known = sorted({taken for names in takers.values() for taken in names})
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.6) or _abbreviation(name, known)
    choices = [
        f"{taken} ({signature.partition('(')[0]})"
        for signature, names in takers.items()
        for taken in names
    ]
    hint = f"Did you mean {nearest[0]}? " if nearest else ""
    return EdlError(
        ErrorCode.UNKNOWN_PARAMETER,
        f"nothing in the model file takes the parameter {name}",
        where=f"--params, {name}",
        remedy=hint
        + (
            f"Use one of: {', '.join(choices)}"
            if choices
            else "This model file takes no parameters"
        )
        + ".",
    )


def _abbreviation(name: str, known: list[str]) -> list[str]:
    """The name that ``name`` abbreviates, or its abbreviation: ``lr`` and ``learning_rate``."""

    def initials(word: str) -> str:
        return "".join(part[0] for part in word.split("_") if part)

    return [other for other in known if initials(other) == name or initials(name) == other]
