"""Checks of statements of SQL against model files, before rows are read and jobs are started.

Workers find all of these mistakes, too, but only when a job has begun.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from edl.plugins.data import storage
from edl.plugins.errors import Problem
from edl.plugins.jobs import candidates, definitions, parameters_of, trained_models
from edl.plugins.texts import did_you_mean
from edl_convert.column_types import Cell
from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.model.trained_model import MODEL_ZOO
from edl_sql import keras_metrics
from edl_sql.language.positions import SqlPositions
from edl_sql.language.statements import Train
from edl_sql.zoos import OWN_ZOO

_REFUSED = re.compile(r" raised ValueError: (.+)", re.DOTALL)
_RAISED_BY_ITSELF = "The file raises this itself: do what its message says."
_REAL_VALUED = ("regressor.", "anomaly.", "trees.")
"""Modules of the zoo whose models predict no integers."""


@contextmanager
def mark_errors(positions: SqlPositions, clause: str, name: str = "") -> Iterator[None]:
    """Add a place in the statement to the errors that the block raises."""
    try:
        yield
    except (EdlError, Problem) as error:
        if "\n" not in error.where:
            known = f"{error.where}, " if error.where else ""
            error.where = f"{known}{positions.mark(clause, name)}"
        raise


@contextmanager
def restate_refusals(statement: Train, zoo: str) -> Iterator[None]:
    """Make what a model of this package refuses in a job a mistake of the statement."""
    try:
        yield
    except EdlError as error:
        refused = _REFUSED.search(error.what)
        if refused is not None and Path(zoo) == OWN_ZOO:
            what = refused[1]
            names = (name for name in statement.params if re.search(rf"\b{name}\b", what))
            error.code, error.what, error.detail = ErrorCode.USAGE, what, ""
            error.where = statement.positions.mark("WITH", next(names, ""))
            error.remedy = error.remedy.replace(_RAISED_BY_ITSELF, "Correct it.", 1)
        raise


def check_parameters(statement: Train, zoo: Path) -> None:
    """Check the parameters in WITH, as far as the texts of the model files show them.

    Raises:
        EdlError: UNKNOWN_PARAMETER, or the value is of another type.
    """
    known = parameters_of(zoo, statement.model_def)
    if known is None:
        return
    for name, value in statement.params.items():
        with mark_errors(statement.positions, "WITH", name):
            if name not in known:
                raise EdlError(
                    ErrorCode.UNKNOWN_PARAMETER,
                    f"{statement.model_def} takes no parameter {name}",
                    remedy=did_you_mean(name, known) or "The model's file names its parameters.",
                )
            if not any(each.takes(value) for each in known[name]):
                expected = known[name][0].expected
                raise EdlError(
                    ErrorCode.USAGE,
                    f"{name} is {_kind_of(value)}; {statement.model_def} expects {expected}",
                    remedy="Correct the value. If the model takes it, annotate the parameter in the"
                    " model's file with its types.",
                )


def _kind_of(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | tuple) and value:
        return f"a list that begins with {_kind_of(value[0])}"
    kinds = {str: "a text", int: "an integer", float: "a number", dict: "a dictionary"}
    return next((what for kind, what in kinds.items() if isinstance(value, kind)), "a list")


def check_metrics(positions: SqlPositions, settings: Mapping[str, object], source: str) -> None:
    """Check ``validation.metrics``: names of Keras, or one of the model's file.

    Args:
        source: the text of the model's file; empty if it is not known.

    Raises:
        EdlError: neither has a metric of this name.
    """
    given = settings.get("eval_metrics_fn")
    if not isinstance(given, str) or "." in given or not source:
        return
    own: frozenset[str] = frozenset()
    names = [name.strip() for name in given.split(",")]
    if len(names) == 1:  # a list has names of Keras only
        try:
            found = definitions(source, "")
        except (SyntaxError, ValueError):
            return
        if not found.complete:
            return
        own = found.names
    for name in names:
        if name in own or keras_metrics.is_known(name):
            continue
        with mark_errors(positions, "WITH", "metrics"):
            raise EdlError(
                ErrorCode.USAGE,
                f"neither Keras nor the model's file has a metric {name!r}",
                remedy=did_you_mean(name, [*own, *keras_metrics.NAMES])
                or "Name metrics of Keras, or one function as module.name of the model zoo.",
            )


def source_of_trained(place: str) -> str:
    """Return the source of a trained model's file, here or in a store; empty if there is none.

    Raises:
        EdlError: there is no trained model.
    """
    description = trained_models.read(place)
    for candidate in reversed(candidates(description.model_def)):
        for file in candidate.files:
            with suppress(OSError, storage.StoreError):
                content = storage.read(f"{place}/{MODEL_ZOO}/{file}")
                return content.decode(errors="replace")
    return ""


def find_prediction_kinds(about: Mapping[str, Any]) -> Sequence[Cell]:
    """Return the kinds of values that a model may predict, the likeliest first.

    Args:
        about: what a statement wrote about the model that it has trained.
    """
    if about["classes"]:
        return (Cell.TEXT,)
    if about["is_classifier"]:
        return (Cell.INT,)
    is_real = str(about.get("model_def")).startswith(_REAL_VALUED)
    return (Cell.FLOAT,) if is_real else (Cell.FLOAT, Cell.INT)


def with_keras_names(settings: Mapping[str, object]) -> dict[str, Any]:
    """Return settings with metrics and the optimizer as Keras names them.

    SQLFlow says Accuracy for the metric that fits the model, and Adam, which takes the parameters
    of ``optimizer.…``.
    """
    found: dict[str, Any] = dict(settings)
    if isinstance(metrics := found.get("eval_metrics_fn"), str):
        names = [name.strip() for name in metrics.split(",")]
        found["eval_metrics_fn"] = ",".join(
            "accuracy" if name == "Accuracy" else name for name in names
        )
    if isinstance(optimizer := found.get("optimizer"), str) and optimizer[:1].isupper():
        found["optimizer"] = f"keras.optimizers.{optimizer.removesuffix('Optimizer')}"
    return found
