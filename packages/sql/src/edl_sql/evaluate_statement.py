"""``SELECT … EVALUATE``: a job measures a model."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from edl.plugins.jobs import api
from edl.plugins.options import Verb
from edl.plugins.texts import plural
from edl_sql.databases.retries import retry_while_unreachable
from edl_sql.language.selection import check_known, check_types, learned_floats
from edl_sql.language.statements import Evaluate
from edl_sql.statement_checks import check_metrics, mark_errors, source_of_trained, with_keras_names
from edl_sql.statement_context import StatementContext
from edl_sql.statement_jobs import as_command
from edl_sql.tables.result_table import ResultRow, append_rows, check_columns, check_insertable

_EVERY_RESULT: ResultRow = {"model": "", "evaluated_at": datetime(1970, 1, 1), "row_count": 0}
"""The columns that all rows of results have."""


def evaluate(context: StatementContext, statement: Evaluate) -> dict[str, Any]:
    """Run a statement that evaluates a model, and return its results by name.

    Raises:
        EdlError, Problem: it does not fit the database or the model, or a job failed.
    """
    at = statement.positions
    with mark_errors(at, "EVALUATE"):
        about = context.jobs.read_description(statement.model)
        if "eval_metrics_fn" in statement.settings:
            source = source_of_trained(context.models.place(statement.model))
            check_metrics(at, statement.settings, source)
    names = context.column_names(statement)
    label = statement.label or about["label"]
    if label:
        with mark_errors(at, "LABEL" if statement.label else "SELECT"):
            check_known(label, names, "the SELECT, and it is the label")
    with mark_errors(at, "SELECT"):
        for name in about["texts"]:
            check_known(name, names, f"the SELECT; the model {statement.model} learned from it")
    if statement.into:
        with mark_errors(at, "INTO"):
            context.database.check_writable("Leave INTO out: the result is printed.")
            check_insertable(context.database, statement.into, _EVERY_RESULT)
    with context.folder() as folder:
        rows = context.convert(
            folder,
            statement.select,
            label=label,
            classes=about["classes"],
            floats=learned_floats(about, label),
        )
        check_types(about, rows.schema or {}, at)
        with context.jobs.running(f"evaluate-{statement.model}") as job:
            result = as_command(api.evaluate)(
                progress=context.progress,
                name=job,
                trained_model=context.models.place(statement.model),
                data=[f"{folder}/rows"],
                **context.options_of(Verb.EVALUATE),
                **with_keras_names(statement.settings),
            )
    number = sum(rows.records.values())
    metrics = {name: float(value) for name, value in result.metrics.items()}
    context.report(
        f"{plural(number, 'row')}: "
        + ", ".join(f"{name} {value:.6g}" for name, value in metrics.items())
    )
    done: dict[str, Any] = {"model": statement.model, "rows": number, "metrics": metrics}
    if statement.into:
        # Whole seconds: MariaDB would round, perhaps up.
        now = datetime.now(UTC).replace(microsecond=0, tzinfo=None)
        row: ResultRow = {
            "model": statement.model,
            "evaluated_at": now,
            "row_count": number,
            **metrics,
        }
        retry_while_unreachable(
            lambda: check_columns(context.database, statement.into, list(row)),
            context.report,
        )
        done["table_created"] = append_rows(context.database, statement.into, [row])
        done["table"] = statement.into
        context.report(f"a row of metrics is in the table {statement.into}")
    return done
