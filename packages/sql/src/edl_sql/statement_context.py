"""What all statements need: the database, the models, the options of jobs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edl.plugins.options import BY_NAME, Given, Verb, gather, read_value
from edl_convert import api as data_api
from edl_sql.databases.database import Database
from edl_sql.databases.retries import retry_while_unreachable
from edl_sql.language.statements import Evaluate, Explain, Predict, Train
from edl_sql.models import SqlModels
from edl_sql.statement_jobs import StatementJobs
from edl_sql.tables.queries import column_names


@dataclass(frozen=True, slots=True)
class SqlSettings:
    """Settings that statements leave open: where models and their files are, and the key of rows.

    Attributes:
        models: folder of trained models, each in a folder of its name; a path, or a URI of a store.
        model_zoo: folder of further model files; by default ``model_zoo`` here, or ``/model_zoo``.
        key: the column that identifies a row when predictions are written; by default a selected
            column that is a key of the table by itself, or else all selected columns together.
        password_file: file whose first line is the database's password.
        work_dir: holds the records between database and jobs while a statement runs; by default the
            system's folder for temporary files. Jobs on other machines must see it.
    """

    models: str = "models"
    model_zoo: str = ""
    key: str = ""
    password_file: str = ""
    work_dir: str = ""


@dataclass(frozen=True, slots=True)
class StatementContext:
    """A database, and the models that statements train with its rows.

    Attributes:
        url: of the database.
        options: of the jobs; what a statement says goes first.
        report: called with lines about what is done, and what was chosen.
        progress: jobs write a line to stderr every few seconds.
    """

    url: str
    database: Database
    settings: SqlSettings
    models: SqlModels
    jobs: StatementJobs
    options: Mapping[str, Any]
    report: Callable[[str], None]
    progress: bool

    def column_names(self, statement: Train | Predict | Evaluate | Explain) -> list[str]:
        """Return the names of the columns of a statement's SELECT."""
        at = statement.positions
        return column_names(self.database, statement.select, at.text, at.start)

    def convert(
        self, folder: str, query: str, name: str = "rows", **options: Any
    ) -> data_api.ConversionResult:
        """Convert the rows of a query to records in a folder of this name."""
        return retry_while_unreachable(
            lambda: data_api.convert_data(
                self.url,
                query=query,
                output=f"{folder}/{name}",
                password_file=self.settings.password_file,
                **options,
            ),
            self.report,
        )

    def folder(self) -> tempfile.TemporaryDirectory[str]:
        """Make a temporary folder for the records of one statement."""
        if self.settings.work_dir:
            Path(self.settings.work_dir).mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(prefix="edl-sql-", dir=self.settings.work_dir or None)

    def options_of(self, verb: Verb) -> dict[str, Any]:
        """Return the options of a job, as the Python API takes them."""
        return {name: value for name, value in self.options.items() if verb in BY_NAME[name].verbs}

    def chosen_options(self, verb: Verb) -> dict[str, Any]:
        """Return the options that the user chose for jobs, also by variables and settings files.

        Raises:
            Problem: one of them is wrong.
        """
        flags = {
            name: Given(value, BY_NAME[name].flag) for name, value in self.options_of(verb).items()
        }
        found = gather(verb, flags, environ=os.environ, cwd=Path.cwd())
        return {name: read_value(BY_NAME[name], given) for name, given in found.items()}
