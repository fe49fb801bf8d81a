"""Carries out statements of SQL, each by the module of its kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from edl.plugins.data import scheme
from edl.plugins.errors import usage
from edl.plugins.jobs import job_catalog
from edl.plugins.options import BY_NAME, Given, read_value
from edl_proto.errors import EdlError, ErrorCode
from edl_sql.databases.database import Database
from edl_sql.evaluate_statement import evaluate
from edl_sql.explain_statement import explain
from edl_sql.language.parser import parse_statements
from edl_sql.language.statements import (
    Describe,
    Evaluate,
    Explain,
    Predict,
    Query,
    ShowTables,
    Statement,
    Train,
)
from edl_sql.language.tokens import Dialect, dialect_of
from edl_sql.model_statements import run_about_models
from edl_sql.models import SqlModels
from edl_sql.predict_statement import predict
from edl_sql.statement_context import SqlSettings, StatementContext
from edl_sql.statement_jobs import StatementJobs
from edl_sql.tables.catalog import column_types, table_names
from edl_sql.tables.queries import read_rows
from edl_sql.train_statement import train

MAX_ROWS = 1000
"""How many rows of a query alone are shown."""


class StatementRunner:
    """A database, and the models that statements train with its rows.

    Args:
        url: of the database.
        options: of the jobs, as the command line has them; what a statement says goes first.
        report: called with lines about what is done, and what was chosen.
        progress: jobs write a line to stderr every few seconds.

    Raises:
        Problem: the URL, the password's file or an option is wrong.
    """

    def __init__(
        self,
        url: str,
        settings: SqlSettings,
        options: Mapping[str, Given],
        report: Callable[[str], None],
        *,
        progress: bool,
    ) -> None:
        values = {name: read_value(BY_NAME[name], entry) for name, entry in options.items()}
        if scheme(settings.work_dir):
            raise usage(
                f"the folder for records is no folder: {settings.work_dir}",
                where="--work-dir",
                remedy="Name a folder of this machine; on Kubernetes, on a volume of the pods.",
            )
        models = SqlModels(settings.models)
        self._context = StatementContext(
            url,
            Database(url, settings.password_file),
            settings,
            models,
            StatementJobs(models, job_catalog(values), report),
            {name: entry.value for name, entry in options.items()},
            report,
            progress,
        )

    @property
    def dialect(self) -> Dialect:
        """The syntax of texts and comments in the database."""
        return dialect_of(self._context.database.backend)

    def parse(self, text: str) -> list[Statement]:
        """Parse the statements of a text.

        Raises:
            Problem: one of them is wrong; nothing has been done then.
        """
        return parse_statements(text, self.dialect)

    def run(self, statement: Statement) -> dict[str, Any]:
        """Run a statement, and return its results by name.

        Raises:
            EdlError, Problem: it does not fit the database or the model, or a job failed.
        """
        match statement:
            case Train():
                return train(self._context, statement)
            case Predict():
                return predict(self._context, statement)
            case Evaluate():
                return evaluate(self._context, statement)
            case Explain():
                return explain(self._context, statement)
            case Query():
                at = statement.positions
                columns, rows = read_rows(
                    self._context.database, statement.select, at.text, at.start, MAX_ROWS + 1
                )
                if len(rows) > MAX_ROWS:
                    self._context.report(f"only the first {MAX_ROWS} rows are shown")
                return {"columns": columns, "rows": rows[:MAX_ROWS]}
            case ShowTables(schema):
                found = table_names(self._context.database, schema)
                return {"columns": ["TABLE"], "rows": [[name] for name in found]}
            case Describe():
                return self._describe(statement)
            case _:
                return run_about_models(statement, self._context.models, self._context.jobs)

    def _describe(self, statement: Describe) -> dict[str, Any]:
        """Describe the model of a name, or else the table.

        Raises:
            EdlError: there is neither.
        """
        unknown = EdlError(
            ErrorCode.DATA_NOT_FOUND,
            f"there is no table {statement.table}",
            where=self._context.database.shown,
        )
        if statement.model:
            try:
                return run_about_models(statement, self._context.models, self._context.jobs)
            except EdlError as error:
                if error.code != ErrorCode.MODEL_NOT_FOUND:
                    raise
                unknown = error
        described = column_types(self._context.database, statement.table)
        if not described:
            unknown.remedy = f"{unknown.remedy} SHOW TABLES; lists the tables.".strip()
            raise unknown
        return {"columns": ["COLUMN", "TYPE"], "rows": described}
