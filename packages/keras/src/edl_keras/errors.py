"""Errors of ``elasticdl.fit``, with what, where and what to do."""

from __future__ import annotations

from collections.abc import Mapping

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


def check_platform(options: Mapping[str, object], where: str) -> None:
    """Check that the workers of a job see the files of this machine.

    Raises:
        Problem: they are pods.
    """
    if options.get("platform") == "kubernetes":
        raise usage(
            "pods of a cluster see no files of this machine, which has the model and its weights",
            where=f"{where}(platform=...)",
            remedy="Leave platform out. For a cluster write a model file, keep the data in a store,"
            " and call elasticdl.train(model_zoo=..., model_def=...).",
        )


def kind_of(value: object) -> str:
    """Return the name of a value's class for a message, with its module if that says more."""
    kind = type(value)
    module = kind.__module__.partition(".")[0]
    return kind.__qualname__ if module in ("builtins", "__main__") else f"{module} {kind.__name__}"
