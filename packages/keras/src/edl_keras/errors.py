"""Errors of ``elasticdl.fit``, with what, where and what to do."""

from __future__ import annotations

from edl.plugins.errors import Problem, usage

FIT = "fit()"
"""The place of an error, if no argument is to blame."""


def argument(name: str) -> str:
    """Return how an error names an argument of ``fit``."""
    return f"fit({name}=...)"


def wrong_argument(name: str, what: str, remedy: str) -> Problem:
    """Return the error for an argument of ``fit`` that cannot be used."""
    return usage(what, where=argument(name), remedy=remedy)


def wrong_model(what: str, remedy: str, where: str = "") -> Problem:
    """Return the error for a model, or for a part of it, that no job can train."""
    return Problem("MODEL_CONTRACT", what, where=where or argument("model"), remedy=remedy)


def kind_of(value: object) -> str:
    """Return the name of a value's class for a message, with its module if that says more."""
    kind = type(value)
    module = kind.__module__.partition(".")[0]
    return kind.__qualname__ if module in ("builtins", "__main__") else f"{module} {kind.__name__}"
