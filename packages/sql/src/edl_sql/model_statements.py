"""Statements about models that are there, and not about rows: SHOW, DESCRIBE, DROP."""

from __future__ import annotations

from typing import Any

from edl_proto.errors import EdlError, ErrorCode
from edl_sql.language.statements import Describe, DropModel, ShowModels, ShowTrain
from edl_sql.models import SqlModels
from edl_sql.statement_checks import mark_errors
from edl_sql.statement_jobs import StatementJobs


def run_about_models(
    statement: ShowTrain | ShowModels | Describe | DropModel, models: SqlModels, jobs: StatementJobs
) -> dict[str, Any]:
    """Run a statement about models, and return its results by name.

    Raises:
        EdlError: there is no such model, or the place of models does not answer.
    """
    match statement:
        case ShowModels():
            return {"models": [_describe(*each) for each in models.describe_all().items()]}
        case ShowTrain(model):
            with mark_errors(statement.positions, "TRAIN"):
                return {"model": model, "statement": jobs.read_description(model)["statement"]}
        case Describe(model=model):
            with mark_errors(statement.positions, "SELECT", model):
                about = jobs.read_description(model)
            return {**_describe(model, about), "statement": about["statement"]}
        case DropModel(model):
            try:
                with mark_errors(statement.positions, "SELECT", model):
                    jobs.read_description(model)
            except EdlError as error:
                if statement.if_exists and error.code == ErrorCode.MODEL_NOT_FOUND:
                    return {"model": model, "dropped": False}
                raise
            models.remove(model)
            return {"model": model, "dropped": True}


def _describe(name: str, about: dict[str, Any]) -> dict[str, Any]:
    """Return what people want to know of a model."""
    return {
        "model": name,
        "model_def": about.get("model_def", ""),
        "label": about["label"],
        "classes": about["classes"],
        "columns": {
            column: "text" if is_text else "number" for column, is_text in about["texts"].items()
        },
    }
