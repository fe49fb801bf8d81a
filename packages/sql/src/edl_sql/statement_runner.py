"""Carries out statements of SQL: trains a model with rows, and predicts a column of a table.

The records between the database and the jobs are in a folder that ends with the statement.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from edl.plugins.jobs import api, job_catalog, learns_label, takes_parameter
from edl.plugins.options import BY_NAME, Given, Verb, read_value
from edl.plugins.texts import plural
from edl_convert import api as data_api
from edl_convert.column_types import Cell
from edl_sql.databases.database import Database
from edl_sql.databases.names import ignores_column_case
from edl_sql.databases.retries import retry_while_unreachable
from edl_sql.language.selection import check_known, check_label, check_types, check_values, select
from edl_sql.language.statements import (
    Evaluate,
    Predict,
    ShowTrain,
    Statement,
    Train,
    parse_statements,
)
from edl_sql.language.table_names import find_name
from edl_sql.language.tokens import Dialect, dialect_of
from edl_sql.models import SqlModels
from edl_sql.statement_checks import (
    check_metrics,
    check_parameters,
    find_prediction_kinds,
    mark_errors,
    source_of_trained,
)
from edl_sql.statement_jobs import StatementJobs
from edl_sql.tables.column_loader import load_column
from edl_sql.tables.predictions import Predictions
from edl_sql.tables.queries import column_names, identifying_columns
from edl_sql.tables.result_table import ResultRow, append_row, check_columns, check_insertable
from edl_sql.tables.row_keys import ROW_KEY, select_different_rows
from edl_sql.tables.target_checks import KEY_CHECK_S, check_keys, check_target
from edl_sql.tables.target_columns import Target, resolve
from edl_sql.zoos import find_zoo

# Small tables need many epochs, so that a model sees enough records.
_MIN_RECORDS = 200_000
_MAX_EPOCHS = 100
_EVERY_RESULT: ResultRow = {"model": "", "evaluated_at": datetime(1970, 1, 1), "row_count": 0}
"""The columns that all rows of results have."""


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
        for name, entry in options.items():
            read_value(BY_NAME[name], entry)
        self._options = {name: entry.value for name, entry in options.items()}
        self._database = Database(url, settings.password_file)
        self._url = url
        self._settings = settings
        self._models = SqlModels(settings.models)
        self._jobs = StatementJobs(self._models, job_catalog(), report)
        self._report = report
        self._progress = progress

    @property
    def dialect(self) -> Dialect:
        """The syntax of texts and comments in the database."""
        return dialect_of(self._database.backend)

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
                return self._train(statement)
            case Predict():
                return self._predict(statement)
            case Evaluate():
                return self._evaluate(statement)
            case ShowTrain():
                with mark_errors(statement.positions, "TRAIN"):
                    about = self._jobs.read_description(statement.model)
                return {"model": statement.model, "statement": about["statement"]}

    def _train(self, statement: Train) -> dict[str, Any]:
        output, at = self._models.place(statement.into), statement.positions
        with mark_errors(at, "INTO"):
            self._jobs.check_free(statement.into)
        with mark_errors(at, "TRAIN"):
            zoo, source, model = find_zoo(statement.model_def, self._settings.model_zoo)
        if not any(self._options.get(name) for name in ("loss", "optimizer", "input_fn")):
            check_parameters(statement, Path(zoo))
        check_metrics(at, statement.settings, source)
        names = self._column_names(statement)
        chosen = select(statement, names, learns_label=learns_label(source, model))
        label = chosen.label
        if label and not statement.label:
            self._report(f"the label is {label}, the last column; LABEL names another one")
        with self._folder() as folder:
            rows = self._convert(folder, statement.select, columns=chosen.columns, label=label)
            schema = rows.schema or {}
            if label:
                with mark_errors(at, *(("LABEL",) if statement.label else ("SELECT", label))):
                    check_label(statement, label, schema, rows.classes)
            if takes_parameter(source, model, "schema"):
                check_values(schema, at)
            settings: dict[str, Any] = {
                **self._options_of(Verb.TRAIN),
                "num_epochs": _epochs(schema["rows"]),
                **_with_metrics(statement.settings),
            }
            epochs = plural(settings["num_epochs"], "epoch")
            self._report(f"{plural(schema['rows'], 'row')}, {epochs}")
            about = {
                "statement": statement.text,
                "label": label,
                "classes": sorted(rows.classes, key=lambda name: rows.classes[name]),
                "is_classifier": "classifier" in statement.model_def.lower(),
                "model_def": statement.model_def,
                "texts": {
                    each["name"]: each["feature"] == "bytes"
                    for each in schema["columns"]
                    if each["name"] != schema["label"]
                },
            }
            with self._jobs.training(statement.into, statement.model_def, about) as job:
                result = api.train(
                    progress=self._progress,
                    name=job,
                    model_zoo=zoo,
                    model_def=statement.model_def,
                    params={**statement.params, **chosen.params, "schema": schema},
                    data=[f"{folder}/rows"],
                    output=output,
                    **settings,
                )
        self._report(f"the model {statement.into} is in {output}")
        return {
            "model": statement.into,
            "output": output,
            "label": label,
            "rows": schema["rows"],
            "epochs": settings["num_epochs"],
            "job": result.job,
        }

    def _predict(self, statement: Predict) -> dict[str, Any]:
        self._database.check_writable()
        at = statement.positions
        with mark_errors(at, "USING"):
            about = self._jobs.read_description(statement.using)
        names = self._column_names(statement)
        with mark_errors(at, "SELECT"):
            for name in about["texts"]:
                check_known(name, names, f"the SELECT; the model {statement.using} learned from it")
        target, query = self._target(statement, names)
        key = target.key
        self._check(target, find_prediction_kinds(about), statement, query)
        with self._folder() as folder:
            rows = self._convert(folder, query, keys=[key])
            check_types(about["texts"], rows.schema or {}, at)
            number = plural(sum(rows.records.values()), "row")
            self._report(
                f"{number} to predict, by {key}"
                if not target.alike
                else f"{number} to predict, all different: no selected column identifies a row of"
                f" {target.table}, and rows with equal {', '.join(target.alike)} get equal"
                " predictions"
            )
            options = self._options_of(Verb.PREDICT)
            if about["is_classifier"]:
                options["postprocess"] = "argmax"
            with self._jobs.running(f"predict-{statement.using}") as job:
                api.predict(
                    progress=self._progress,
                    name=job,
                    trained_model=self._models.place(statement.using),
                    data=[f"{folder}/rows"],
                    keep=[key],
                    output=f"{folder}/predictions.recordio",
                    **options,
                )
            predictions = Predictions(
                f"{folder}/predictions.recordio", key, "prediction", about["classes"]
            )
            done = retry_while_unreachable(
                lambda: load_column(self._database, target, predictions, lambda _: None),
                self._report,
            )
        self._report(
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

    def _check(self, target: Target, kinds: Sequence[Cell], statement: Predict, query: str) -> None:
        """Check before a job that its predictions can be written."""

        def check() -> bool:
            with mark_errors(statement.positions, "PREDICT"):
                check_target(self._database, target, kinds)
            with mark_errors(statement.positions, "SELECT", target.key):
                return check_keys(self._database, target, query)

        if not retry_while_unreachable(check, self._report):
            self._report(f"the keys were not compared in {KEY_CHECK_S} s; loading will do it")

    def _evaluate(self, statement: Evaluate) -> dict[str, Any]:
        at = statement.positions
        with mark_errors(at, "EVALUATE"):
            about = self._jobs.read_description(statement.model)
            if "eval_metrics_fn" in statement.settings:
                source = source_of_trained(self._models.place(statement.model))
                check_metrics(at, statement.settings, source)
        names = self._column_names(statement)
        label = statement.label or about["label"]
        if label:
            with mark_errors(at, "LABEL" if statement.label else "SELECT"):
                check_known(label, names, "the SELECT, and it is the label")
        with mark_errors(at, "SELECT"):
            for name in about["texts"]:
                check_known(name, names, f"the SELECT; the model {statement.model} learned from it")
        if statement.into:
            with mark_errors(at, "INTO"):
                self._database.check_writable()
                check_insertable(self._database, statement.into, _EVERY_RESULT)
        with self._folder() as folder:
            rows = self._convert(folder, statement.select, label=label, classes=about["classes"])
            check_types(about["texts"], rows.schema or {}, at)
            with self._jobs.running(f"evaluate-{statement.model}") as job:
                result = api.evaluate(
                    progress=self._progress,
                    name=job,
                    trained_model=self._models.place(statement.model),
                    data=[f"{folder}/rows"],
                    **self._options_of(Verb.EVALUATE),
                    **_with_metrics(statement.settings),
                )
        number = sum(rows.records.values())
        metrics = {name: float(value) for name, value in result.metrics.items()}
        self._report(
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
                lambda: check_columns(self._database, statement.into, list(row)), self._report
            )
            done["table_created"] = append_row(self._database, statement.into, row)
            done["table"] = statement.into
            self._report(f"a row of metrics is in the table {statement.into}")
        return done

    def _column_names(self, statement: Train | Predict | Evaluate) -> list[str]:
        at = statement.positions
        return column_names(self._database, statement.select, at.text, at.start)

    def _convert(self, folder: str, query: str, **options: Any) -> data_api.ConversionResult:
        """Convert the rows of a query to records in ``rows`` of the folder."""
        return retry_while_unreachable(
            lambda: data_api.convert_data(
                self._url,
                query=query,
                output=f"{folder}/rows",
                password_file=self._settings.password_file,
                **options,
            ),
            self._report,
        )

    def _folder(self) -> tempfile.TemporaryDirectory[str]:
        """Make a temporary folder for the records of one statement."""
        if self._settings.work_dir:
            Path(self._settings.work_dir).mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(prefix="edl-sql-", dir=self._settings.work_dir or None)

    def _options_of(self, verb: Verb) -> dict[str, Any]:
        """Return the options of a job, as the Python API takes them."""
        return {name: value for name, value in self._options.items() if verb in BY_NAME[name].verbs}

    def _target(self, statement: Predict, names: Sequence[str]) -> tuple[Target, str]:
        """Return where predictions go, and the query for the rows to predict."""
        any_case = ignores_column_case(self._database.backend)
        key = find_name(self._settings.key, names, any_case=any_case)
        if self._settings.key:
            check_known(key or self._settings.key, names, "the SELECT", "--key")
        else:
            with mark_errors(statement.positions, "PREDICT"):
                keys = identifying_columns(self._database, statement.table)
            selected = (find_name(name, names, any_case=any_case) for name in keys)
            key = next(filter(None, selected), None)
        if key:
            return Target(statement.table, statement.column, key), statement.select
        target = Target(statement.table, statement.column, ROW_KEY, tuple(names))
        with (
            mark_errors(statement.positions, "PREDICT"),
            self._database.reading() as connection,
        ):
            _, types = resolve(connection, target, self._database.shown)
            return target, select_different_rows(connection, statement.select, names, types)


def _with_metrics(settings: Mapping[str, object]) -> dict[str, Any]:
    """Spell metrics as Keras does: SQLFlow says Accuracy for the one that fits the model."""
    found: dict[str, Any] = dict(settings)
    if isinstance(metrics := found.get("eval_metrics_fn"), str):
        names = [name.strip() for name in metrics.split(",")]
        found["eval_metrics_fn"] = ",".join(
            "accuracy" if name == "Accuracy" else name for name in names
        )
    return found


def _epochs(rows: int) -> int:
    return max(1, min(_MAX_EPOCHS, _MIN_RECORDS // rows))
