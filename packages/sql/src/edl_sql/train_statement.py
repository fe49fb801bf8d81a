"""``SELECT … TRAIN``: a job learns a model from rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from edl.plugins.jobs import api, learns_label, learns_whole_epochs, takes_parameter
from edl.plugins.options import Verb
from edl.plugins.texts import plural
from edl_sql.language.positions import SqlPositions
from edl_sql.language.selection import (
    Selection,
    check_known,
    check_label,
    check_values,
    select,
)
from edl_sql.language.statements import IfThere, Train
from edl_sql.rounds import check_rounds, describe_epochs, plan_rounds
from edl_sql.row_checks import check_functions, find_written_numbers
from edl_sql.statement_checks import (
    check_metrics,
    check_parameters,
    mark_errors,
    restate_refusals,
    with_keras_names,
)
from edl_sql.statement_context import StatementContext
from edl_sql.statement_jobs import as_command
from edl_sql.tables.catalog import primary_keys
from edl_sql.tables.queries import column_names
from edl_sql.zoos import find_model

# Small tables need many epochs, so that a model sees enough records.
_MIN_RECORDS = 200_000
_MAX_EPOCHS = 100


def train(context: StatementContext, statement: Train) -> dict[str, Any]:
    """Run a statement that trains a model, and return its results by name.

    Raises:
        EdlError, Problem: it does not fit the database or the model, or a job failed.
    """
    place, at = context.models.place(statement.into), statement.positions
    if statement.if_there is IfThere.KEEP and context.models.exists(statement.into):
        context.report(f"there is a model {statement.into} already: it stays")
        return {"model": statement.into, "output": place, "job": ""}
    replaces = statement.if_there is IfThere.REPLACE
    with mark_errors(at, "INTO", statement.into):
        context.jobs.check_free(statement.into, replaces=replaces)
    with mark_errors(at, "TRAIN"):
        found = find_model(statement.model_def, statement.params, context.settings.model_zoo)
    statement = replace(statement, model_def=found.model_def, params=dict(found.params))
    zoo, source, model = found.zoo, found.source, found.name
    chosen_options = {**context.chosen_options(Verb.TRAIN), **statement.settings}
    if not any(chosen_options.get(name) for name in ("loss", "optimizer", "input_fn")):
        check_parameters(statement, Path(zoo))
    check_metrics(at, statement.settings, source)
    in_rounds = learns_whole_epochs(source, model)
    check_rounds(statement, chosen_options, in_rounds=in_rounds)
    names = context.column_names(statement)
    keys = primary_keys(context.database, statement.select)
    chosen = select(statement, names, learns_label=learns_label(source, model), keys=keys)
    if unused := ", ".join(chosen.unused_keys):
        context.report(f"{unused}: a primary key is not learned from, unless COLUMN names it")
    label = chosen.label
    if label and not statement.label:
        context.report(f"the label is {label}, the last column; LABEL names another one")
    _check_validation(context, statement, chosen.columns or names)
    with context.folder() as folder:
        rows = context.convert(folder, statement.select, columns=chosen.columns, label=label)
        schema = rows.schema or {}
        if label:
            with mark_errors(at, *(("LABEL",) if statement.label else ("SELECT", label))):
                check_label(statement, label, schema, rows.classes)
        if takes_parameter(source, model, "schema"):
            _check_features(context, chosen, schema, at, f"{folder}/rows")
        settings: dict[str, Any] = {
            **context.options_of(Verb.TRAIN),
            "num_epochs": _epochs(schema["rows"]),
            **with_keras_names(statement.settings),
            "model_zoo": zoo,
        }
        if in_rounds:
            settings |= plan_rounds(schema, statement.params, chosen_options, zoo, Path(folder))
        context.report(
            f"{plural(schema['rows'], 'row')}, "
            + describe_epochs(statement.params, settings["num_epochs"], in_rounds=in_rounds)
        )
        about = _describe(statement, label, schema, rows.classes)
        if statement.validation:
            with mark_errors(at, "WITH", "select"):
                context.convert(
                    folder,
                    statement.validation,
                    "validation",
                    columns=chosen.columns,
                    label=label,
                    classes=about["classes"],
                    floats=about["floats"],
                )
            settings["validation_data"] = [f"{folder}/validation"]
        with (
            restate_refusals(statement, zoo),
            context.jobs.training(
                statement.into, statement.model_def, about, replaces=replaces
            ) as (job, output),
        ):
            result = as_command(api.train)(
                progress=context.progress,
                name=job,
                model_def=statement.model_def,
                params={**statement.params, **chosen.params, "schema": schema},
                data=[f"{folder}/rows"],
                output=output,
                **settings,
            )
    context.report(f"the model {statement.into} is in {place}")
    metrics = {name: float(value) for name, value in result.metrics.items()}
    if metrics:
        context.report(", ".join(f"{name} {value:.6g}" for name, value in metrics.items()))
    return {
        "model": statement.into,
        "output": place,
        "label": label,
        "rows": schema["rows"],
        "epochs": result.epochs or settings["num_epochs"],
        "metrics": metrics,
        "job": result.job,
    }


def _check_validation(context: StatementContext, statement: Train, columns: Sequence[str]) -> None:
    """Check that the rows that measure the model in training have its columns."""
    if not statement.validation:
        return
    with mark_errors(statement.positions, "WITH", "select"):
        found = column_names(context.database, statement.validation, statement.validation)
        for name in columns:
            check_known(name, found, "validation.select")


def _check_features(
    context: StatementContext,
    chosen: Selection,
    schema: Mapping[str, Any],
    at: SqlPositions,
    folder: str,
) -> None:
    """Check what a model that configures itself from the schema learns from."""
    check_values(schema, at)
    for terms in chosen.params.values():
        check_functions(terms if isinstance(terms, list) else [], schema, at)
    _warn_of_times(context, schema)
    if found := find_written_numbers(folder, schema):
        context.report(
            f"{', '.join(found)}: texts, of which each number is a word by itself; to learn from"
            f" numbers, write CAST({found[0]} AS FLOAT) AS {found[0]} in the SELECT"
        )


def _describe(
    statement: Train, label: str, schema: Mapping[str, Any], classes: Mapping[str, int]
) -> dict[str, Any]:
    """Return what later statements must know about the model."""
    features = {
        label if each["name"] == schema["label"] else each["name"]: each["feature"]
        for each in schema["columns"]
    }
    return {
        "statement": statement.text,
        "label": label,
        "classes": sorted(classes, key=lambda name: classes[name]),
        "is_classifier": "classifier" in statement.model_def.lower(),
        "model_def": statement.model_def,
        "floats": [name for name, feature in features.items() if feature == "float"],
        "texts": {name: feature == "bytes" for name, feature in features.items() if name != label},
    }


def _epochs(rows: int) -> int:
    return max(1, min(_MAX_EPOCHS, _MIN_RECORDS // rows))


def _warn_of_times(context: StatementContext, schema: Mapping[str, Any]) -> None:
    """Say that models round timestamps, as 32-bit floats of microseconds."""
    times = [
        each["name"]
        for each in schema["columns"]
        if each["type"] == "timestamp" and each["name"] != schema["label"]
    ]
    if times:
        context.report(
            f"{', '.join(times)}: a model knows a timestamp to two minutes only; select what"
            f" matters, such as EXTRACT(HOUR FROM {times[0]}) AS hour"
        )
