"""``SELECT … PREDICT``: predictions become a column of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from edl.plugins.errors import usage
from edl.plugins.jobs import api
from edl.plugins.options import Verb
from edl.plugins.texts import plural
from edl_convert.column_types import Cell
from edl_proto.errors import EdlError
from edl_sql.databases.names import ignores_column_case
from edl_sql.databases.retries import retry_while_unreachable
from edl_sql.language.selection import check_known, check_types, learned_floats
from edl_sql.language.statements import Predict
from edl_sql.language.table_names import find_name
from edl_sql.statement_checks import find_prediction_kinds, mark_errors
from edl_sql.statement_context import StatementContext
from edl_sql.statement_jobs import as_command
from edl_sql.tables.catalog import identifying_columns
from edl_sql.tables.column_loader import load_column
from edl_sql.tables.new_table import create_if_missing, drop
from edl_sql.tables.predictions import Predictions
from edl_sql.tables.row_keys import ROW_KEY, select_different_rows
from edl_sql.tables.target_checks import KEY_CHECK_S, check_keys, check_target
from edl_sql.tables.target_columns import Target, resolve


def predict(context: StatementContext, statement: Predict) -> dict[str, Any]:
    """Run a statement that predicts a column of a table, and return its results by name.

    Raises:
        EdlError, Problem: it does not fit the database or the model, or a job failed.
    """
    context.database.check_writable()
    at = statement.positions
    with mark_errors(at, "USING"):
        about = context.jobs.read_description(statement.using)
    names = context.column_names(statement)
    with mark_errors(at, "SELECT"):
        for name in about["texts"]:
            check_known(name, names, f"the SELECT; the model {statement.using} learned from it")
    any_case = ignores_column_case(context.database.backend)
    with mark_errors(at, "PREDICT"):
        _check_is_not_learned(statement, about["texts"], any_case=any_case)
    target = find_name(statement.column, names, any_case=any_case)
    others = [name for name in names if name != target]
    with mark_errors(at, "PREDICT"):
        new = create_if_missing(
            context.database, statement.table, statement.select, others if target else ()
        )
    if not new:
        return {**_predict_rows(context, statement, names, about), "table_created": False}
    context.report(f"the table {statement.table} is new, with the rows of the SELECT")
    # Its rows are those of one moment. If this process is killed, the statement can be repeated.
    rows = replace(statement, select=f"SELECT * FROM {new}")
    try:
        return {**_predict_rows(context, rows, others, about), "table_created": True}
    except BaseException:
        with suppress(EdlError):
            drop(context.database, new)
        raise


def _check_is_not_learned(statement: Predict, learned: Iterable[str], *, any_case: bool) -> None:
    """Raise a ``Problem`` if the predictions would replace what the model predicts from."""
    column = find_name(statement.column, learned, any_case=any_case)
    if column is not None:
        raise usage(
            f"the model {statement.using} predicts from {column}, which the predictions would"
            " replace",
            remedy="Name another column: a column that does not exist is created.",
        )


def _predict_rows(
    context: StatementContext,
    statement: Predict,
    names: Sequence[str],
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """Predict rows of a table that is there."""
    at = statement.positions
    target, query = _target(context, statement, names)
    key = target.key
    _check(context, target, find_prediction_kinds(about), statement, query)
    with context.folder() as folder:
        rows = context.convert(folder, query, keys=[key], floats=learned_floats(about))
        check_types(about, rows.schema or {}, at)
        number = plural(sum(rows.records.values()), "row")
        context.report(
            f"{number} to predict, by {key}"
            if not target.alike
            else f"{number} to predict, all different: no selected column identifies a row of"
            f" {target.table}, and rows with equal {', '.join(target.alike)} get equal"
            " predictions"
        )
        options = {**context.options_of(Verb.PREDICT), **statement.settings}
        if about["is_classifier"]:
            options["postprocess"] = "argmax"
        with context.jobs.running(f"predict-{statement.using}") as job:
            as_command(api.predict)(
                progress=context.progress,
                name=job,
                trained_model=context.models.place(statement.using),
                data=[f"{folder}/rows"],
                keep=[key],
                output=f"{folder}/predictions.recordio",
                **options,
            )
        predictions = Predictions(
            f"{folder}/predictions.recordio", key, "prediction", about["classes"]
        )
        done = retry_while_unreachable(
            lambda: load_column(context.database, target, predictions, lambda _: None),
            context.report,
        )
    context.report(
        f"{plural(done.rows, 'prediction')} in column {statement.column} of {statement.table}"
    )
    return {
        "model": statement.using,
        "table": statement.table,
        "column": statement.column,
        "key": key if not target.alike else list(target.alike),
        "rows": done.rows,
        "other_rows": done.others,
        "column_added": done.column_added,
    }


def _check(
    context: StatementContext, target: Target, kinds: Sequence[Cell], statement: Predict, query: str
) -> None:
    """Check before a job that its predictions can be written."""

    def check() -> bool:
        with mark_errors(statement.positions, "PREDICT"):
            check_target(context.database, target, kinds)
        with mark_errors(statement.positions, "SELECT", target.key):
            return check_keys(context.database, target, query)

    if not retry_while_unreachable(check, context.report):
        context.report(f"the keys were not compared in {KEY_CHECK_S} s; loading will do it")


def _target(
    context: StatementContext, statement: Predict, names: Sequence[str]
) -> tuple[Target, str]:
    """Return where predictions go, and the query for the rows to predict."""
    any_case = ignores_column_case(context.database.backend)
    key = find_name(context.settings.key, names, any_case=any_case)
    if context.settings.key:
        check_known(key or context.settings.key, names, "the SELECT", "--key")
    else:
        with mark_errors(statement.positions, "PREDICT"):
            keys = identifying_columns(context.database, statement.table)
        selected = (find_name(name, names, any_case=any_case) for name in keys)
        key = next(filter(None, selected), None)
    if key:
        return Target(statement.table, statement.column, key), statement.select
    # The column that predictions replace says nothing about which row is which.
    column = find_name(statement.column, names, any_case=any_case)
    names = [name for name in names if name != column]
    target = Target(statement.table, statement.column, ROW_KEY, tuple(names))
    with (
        mark_errors(statement.positions, "PREDICT"),
        context.database.reading() as connection,
    ):
        _, types = resolve(connection, target, context.database.shown)
        return target, select_different_rows(connection, statement.select, names, types)
