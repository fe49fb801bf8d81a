"""``SELECT … TO EXPLAIN``: how much each column adds to predictions, in a table and a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

import numpy as np

import recordio
import recordio.example
from edl.plugins.data import storage
from edl.plugins.errors import usage
from edl.plugins.jobs import api
from edl.plugins.options import Verb
from edl.plugins.texts import plural
from edl_sql.language.selection import check_known, check_types, learned_floats
from edl_sql.language.statements import Explain
from edl_sql.statement_checks import mark_errors
from edl_sql.statement_context import StatementContext
from edl_sql.statement_jobs import as_command
from edl_sql.tables.result_table import ResultRow, append_rows, check_insertable

_TREES = "trees."
_EXPLAINED = ("classifier.", "regressor.", _TREES)
_INPUT_FN = "sqlflow.explain_input"
PICTURE = "explanation.svg"
"""In the folder of the model: the last explanation."""


def explain(context: StatementContext, statement: Explain) -> dict[str, Any]:
    """Run a statement that explains a model, and return its results by name.

    Raises:
        EdlError, Problem: it does not fit the database or the model, or a job failed.
    """
    at = statement.positions
    with mark_errors(at, "EXPLAIN"):
        about = context.jobs.read_description(statement.model)
    if not str(about.get("model_def")).startswith(_EXPLAINED):
        raise usage(
            f"{statement.model} was learned by {about.get('model_def')}, which cannot be explained",
            where=at.mark("EXPLAIN"),
            remedy="Models of regressor, classifier and trees can.",
        )
    if statement.of_trees and not str(about["model_def"]).startswith(_TREES):
        raise usage(
            f"TreeExplainer is of trees, and {statement.model} was learned by {about['model_def']}",
            where=at.mark("USING"),
            remedy="Leave USING out: integrated gradients explain networks.",
        )
    names = context.column_names(statement)
    with mark_errors(at, "SELECT"):
        for name in about["texts"]:
            check_known(name, names, f"the SELECT; the model {statement.model} learned from it")
    if statement.into:
        with mark_errors(at, "INTO"):
            context.database.check_writable("Leave INTO out: the result is printed.")
            check_insertable(context.database, statement.into, _row(statement.model, "", 0, 0.0))
    with context.folder() as folder:
        rows = context.convert(folder, statement.select, floats=learned_floats(about))
        check_types(about, rows.schema or {}, at)
        with context.jobs.running(f"explain-{statement.model}") as job:
            as_command(api.predict)(
                progress=context.progress,
                name=job,
                trained_model=context.models.place(statement.model),
                data=[f"{folder}/rows"],
                output=f"{folder}/explanations.recordio",
                input_fn=_INPUT_FN,
                **context.options_of(Verb.PREDICT),
            )
        found = _mean_contributions(f"{folder}/explanations.recordio", sorted(about["texts"]))
    number = sum(rows.records.values())
    picture = f"{context.models.place(statement.model)}/{PICTURE}"
    storage.write(picture, draw(f"{statement.model}, {plural(number, 'row')}", found).encode())
    context.report(f"{plural(number, 'row')} explained; the picture is {picture}")
    done: dict[str, Any] = {
        "model": statement.model,
        "rows": number,
        "contributions": found,
        "picture": picture,
    }
    if statement.into:
        results = [_row(statement.model, name, number, value) for name, value in found.items()]
        done["table_created"] = append_rows(context.database, statement.into, results)
        done["table"] = statement.into
    return done


def _row(model: str, column: str, rows: int, value: float) -> ResultRow:
    now = datetime.now(UTC).replace(microsecond=0, tzinfo=None)
    return {
        "model": model,
        "explained_at": now,
        "row_count": rows,
        "column_name": column,
        "contribution": value,
    }


def _mean_contributions(file: str, columns: Sequence[str]) -> dict[str, float]:
    """Return the mean absolute contribution of each column, the greatest first."""
    source = recordio.open_source(file)
    total, number = np.zeros(len(columns)), 0
    for record in source.read(0, source.count()):
        total += np.abs(recordio.example.decode(record)["prediction"])
        number += 1
    found = {name: float(each) for name, each in zip(columns, total / number, strict=True)}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def draw(title: str, contributions: Mapping[str, float]) -> str:
    """Return a bar for each column as an SVG."""
    greatest = max(contributions.values(), default=0.0) or 1.0
    height = 30 + 24 * len(contributions)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="640" height="{height}"'
        ' font-family="sans-serif" font-size="13">',
        f'<text x="8" y="18" font-weight="bold">{escape(title)}</text>',
    ]
    for place, (name, value) in enumerate(contributions.items()):
        y = 30 + 24 * place
        lines += [
            f'<text x="192" y="{y + 14}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="200" y="{y + 2}" width="{340 * value / greatest:.1f}" height="16"'
            ' fill="#3572b0"/>',
            f'<text x="{206 + 340 * value / greatest:.1f}" y="{y + 14}">{value:.4g}</text>',
        ]
    return "\n".join([*lines, "</svg>\n"])
