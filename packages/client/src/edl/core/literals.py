"""Parameters of models: ``hidden_units=[10, 5], lr=0.1``, parsed and never evaluated."""

from __future__ import annotations

import ast


def parse_params(text: str) -> dict[str, object]:
    """The parameters in ``text`` by name, in the order given.

    Values are Python literals: numbers, strings, booleans, None, and lists, tuples, sets and
    dictionaries of them.

    Raises:
        ValueError: with a sentence that says what is wrong and where.
    """
    if not text.strip():
        return {}
    # Only as the arguments of a call is "a=1, b=[2, 3]" Python; nothing of it is run.
    try:
        call = ast.parse(f"f({text}\n)", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        column = getattr(error, "offset", None)
        at = f" near {text[max(0, column - 3) :][:20]!r}" if column else ""
        raise ValueError(f"expected name=value, name=value{at}") from None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise ValueError("expected name=value, name=value")
    if call.args:
        raise ValueError(f"{ast.unparse(call.args[0])} has no name; write name=value")
    values: dict[str, object] = {}
    for keyword in call.keywords:
        if keyword.arg is None:
            raise ValueError(f"**{ast.unparse(keyword.value)} is not of the form name=value")
        if keyword.arg in values:
            raise ValueError(f"{keyword.arg} appears twice")
        try:
            values[keyword.arg] = ast.literal_eval(keyword.value)
        except (ValueError, TypeError, SyntaxError, RecursionError):
            raise ValueError(
                f"the value of {keyword.arg}, {ast.unparse(keyword.value)}, is not a literal"
                " (a number, string, list, ...)"
            ) from None
    return values


def format_params(values: dict[str, object]) -> str:
    """The text that ``parse_params`` reads as ``values``."""
    return ", ".join(f"{name}={value!r}" for name, value in values.items())
