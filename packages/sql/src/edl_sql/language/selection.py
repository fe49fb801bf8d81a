"""The choice of the columns of a SELECT that a model learns from, and of the label."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edl.plugins.errors import Problem, usage
from edl.plugins.texts import did_you_mean
from edl_convert.column_types import Cell, cell_kind
from edl_sql.language.columns import ColumnTerm, as_lists, columns_in
from edl_sql.language.positions import SqlPositions
from edl_sql.language.statements import Train

_REGRESSORS = ("regressor.", "trees.BoostedTreesRegressor")
_CLASSIFIERS = ("classifier.", "trees.BoostedTreesClassifier")
_NETWORKS = ("regressor.DNN", "classifier.DNN")
_NUMBERS = (Cell.INT, Cell.FLOAT)
_ALL = (".*",)
_TREES = ("BoostedTreesRegressor", "BoostedTreesClassifier")


@dataclass(frozen=True, slots=True)
class Selection:
    """The columns and parameters that a model is trained with.

    Attributes:
        label: the column to learn; empty for a model that learns none.
        columns: those to convert, the label among them; none for all.
        params: of the model: what COLUMN says, where it has functions or FOR.
        unused_keys: primary keys that a pattern, or no COLUMN at all, would have included.
    """

    label: str
    columns: tuple[str, ...]
    params: Mapping[str, object]
    unused_keys: tuple[str, ...] = ()


def select(
    statement: Train, names: Sequence[str], *, learns_label: bool, keys: Collection[str] = ()
) -> Selection:
    """Bind the clauses LABEL and COLUMN to the columns of the SELECT.

    Args:
        names: of the SELECT's columns.
        learns_label: the model needs a label, which is the last column by default.
        keys: columns that number the rows: unless COLUMN names them, they are not learned from if
            there are others.

    Raises:
        Problem: a column is not there.
    """
    at = statement.positions
    label = statement.label or (names[-1] if learns_label else "")
    if label:
        check_known(label, names, "the SELECT", at.mark("LABEL") if statement.label else "")
    for name in statement.left_out:
        if name.lower() not in map(str.lower, names):
            check_known(name, names, "the SELECT", at.mark("TRANSFORM", name))
    params: dict[str, object] = {}
    used: list[str] = []
    unused: set[str] = set()
    has_keys = bool(set(keys) & (set(names) - {label}))
    for target, terms in (statement.columns or ({"": _ALL} if has_keys else {})).items():
        expanded = list(_expand(terms, names, label, keys))
        used += columns_in(expanded)
        unused.update(columns_in(list(_expand(terms, names, label))))
        if target or not all(isinstance(term, str) for term in expanded):
            params[target or "columns"] = [as_lists(term) for term in expanded]
    for name in used:
        check_known(name, names, "the SELECT", at.mark("COLUMN", name))
    features = [name for name in dict.fromkeys(used) if name != label]
    if (statement.columns and not features) or not set(names) - {label}:
        raise _mismatch(
            f"there is no column to learn {label} from" if label else "there is no column",
            "Select other columns, and name them in COLUMN or leave COLUMN out.",
            at.mark("COLUMN" if statement.columns else "SELECT"),
        )
    columns = (*features, *([label] if label else ())) if features else ()
    return Selection(label, columns, params, tuple(n for n in names if n in unused - {*used}))


def _expand(
    terms: Sequence[ColumnTerm], names: Sequence[str], label: str, keys: Collection[str] = ()
) -> Iterator[ColumnTerm]:
    """Expand names that no column has: they are patterns for several columns, as in SQLFlow.

    A pattern finds the keys only if it fits no other columns.
    """
    for term in terms:
        if not isinstance(term, str) or term in names:
            if term != label:
                yield term
            continue
        try:
            pattern = re.compile(term, re.IGNORECASE)
        except re.error:
            pattern = re.compile(re.escape(term))
        fitting = [name for name in names if pattern.fullmatch(name) and name != label]
        yield from [name for name in fitting if name not in keys] or fitting or [term]


def check_known(name: str, names: Sequence[str], place: str, where: str = "") -> None:
    """Raise a ``Problem`` unless this is one of the columns."""
    if name not in names:
        raise _mismatch(
            f"there is no column {name} in {place}",
            did_you_mean(name, names) or f"There are {', '.join(names)}.",
            where,
        )


def check_label(
    statement: Train, label: str, schema: Mapping[str, Any], classes: Mapping[str, int]
) -> None:
    """Check that a model of the zoo can learn the label; what others learn, a worker finds out.

    Args:
        label: the column.
        schema: of the converted rows, with the label under the name that records have it by.
        classes: numbers of the texts, if the label is one.

    Raises:
        Problem: it is a text or a number, and the model learns the other.
    """
    model = statement.model_def
    is_classifier = model.startswith(_CLASSIFIERS)
    if not is_classifier and not model.startswith(_REGRESSORS):
        return
    regressor, classifier = _TREES if model.startswith("trees.") else _NETWORKS
    if not is_classifier:
        if classes:
            number = f"CAST({label} AS FLOAT) AS {label}"
            raise usage(
                f"the label {label} is a text; {model} learns numbers",
                remedy=f"Its texts are numbers: write {number} in the SELECT."
                if len(classes) > 1 and all(cell_kind(each) in _NUMBERS for each in classes)
                else f"Use a classifier: TRAIN {classifier}",
            )
        return
    _check_number_of_classes(label, schema, classes)
    found = next((each for each in schema["columns"] if each["name"] == schema["label"]), None)
    given = statement.params.get("n_classes")
    if found is None or found["feature"] not in ("int64", "float"):
        return
    if found["feature"] == "float" and given is None:
        wrong = f"its type is {found['type']}"
    elif found.get("min", 0) < 0:
        wrong = f"its least value is {found['min']}"
    else:
        if isinstance(given, int) and found.get("max", 0) >= given:
            raise usage(
                f"the label {label} has classes up to number {found['max']}, counted from 0; with"
                f" n_classes={given}, the greatest is {given - 1}",
                remedy="Leave n_classes out, or correct it.",
            )
        return
    raise usage(
        f"the label {label} is not a class: {wrong}; {model} learns texts, or integers from 0 on",
        remedy=f"Use a regressor, TRAIN {regressor}, or CAST the label in the SELECT.",
    )


def _check_number_of_classes(
    label: str, schema: Mapping[str, Any], classes: Mapping[str, int]
) -> None:
    """Raise a ``Problem`` if all rows have the same label."""
    found = next((each for each in schema["columns"] if each["name"] == schema["label"]), None)
    if found is None or found["feature"] != "int64" or found.get("min") != found.get("max"):
        return
    same = next(iter(classes), found.get("min"))
    raise usage(
        f"the label {label} is {same} in all rows, and there is nothing to tell apart",
        remedy="Select rows of other classes, too; to find unusual rows, TRAIN anomaly.Autoencoder"
        " needs no label.",
    )


def check_values(schema: Mapping[str, Any], at: SqlPositions) -> None:
    """Check what models that configure themselves from the schema cannot learn from.

    They say the same, in a job.

    Raises:
        Problem: a column has no values, or NaN or infinities.
    """
    for column in schema["columns"]:
        if column["feature"] is None:
            raise _mismatch(
                f"the column {column['name']} has no values at all",
                "Leave it out, or name the others in COLUMN.",
                at.mark("SELECT", column["name"]),
            )
        if column.get("not_finite"):
            raise _mismatch(
                f"the column {column['name']} has infinities or NaN",
                f"Leave these rows out, or select NULLIF({column['name']}, 'NaN').",
                at.mark("SELECT", column["name"]),
            )


def learned_floats(about: Mapping[str, Any], label: str = "") -> list[str]:
    """Return the columns that had floats when a model was trained.

    Args:
        about: what a statement wrote about the model.
        label: the column that is the label now; it is one of them if that of the training was.
    """
    known = about.get("floats", ())  # models of earlier versions do not say
    return [*known, label] if about["label"] in known else [*known]


def check_types(about: Mapping[str, Any], schema: Mapping[str, Any], at: SqlPositions) -> None:
    """Check that columns hold what they held when the model was trained.

    Args:
        about: what a statement wrote about the model that it has trained.

    Raises:
        Problem: one does not.
    """
    for column in schema["columns"]:
        was_text = about["texts"].get(column["name"])
        if was_text is None or column["feature"] is None:
            continue
        if was_text != (column["feature"] == "bytes"):
            now, then = ("numbers", "texts") if was_text else ("texts", "numbers")
            raise _mismatch(
                f"the column {column['name']} has {now}; the model was trained with {then}",
                "CAST it in the SELECT.",
                at.mark("SELECT", column["name"]),
            )
        floats = about.get("floats")  # models of earlier versions do not say
        if column["feature"] == "float" and floats is not None and column["name"] not in floats:
            raise _mismatch(
                f"the column {column['name']} has floats; the model was trained with integers",
                "CAST it to an integer in this SELECT, or to a float in the one that trains.",
                at.mark("SELECT", column["name"]),
            )


def _mismatch(what: str, remedy: str, where: str = "") -> Problem:
    return usage(what, where=where, remedy=remedy)
