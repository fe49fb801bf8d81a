"""``edl sql``: statements that train models with rows, and predict columns of tables."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from edl.plugins.commands import (
    Format,
    argument,
    command,
    errors_as_output,
    option,
    output_option,
    print_result,
    quiet_option,
)
from edl.plugins.options import RUNNING, find_given, takes
from edl_convert.cli import password_file_option

_EXAMPLES = """
edl sql --db postgresql://me@host/shop -e "SELECT name, role, salary FROM employee \\
    TRAIN regressor.DNN WITH hidden_units=[10, 100], learning_rate=0.01 INTO my_model;"
edl sql --db postgresql://me@host/shop \\
    -e "SELECT id, name, role FROM testdata PREDICT testdata.predicted_salary USING my_model;"
edl sql --db sqlite:///shop.db -e "SHOW TRAIN my_model;"
edl sql --db sqlite:///shop.db statements.sql --platform docker --num-workers 2
edl sql --db sqlite:///shop.db
"""


@command("sql", examples=_EXAMPLES)
@option(
    "database",
    "--db",
    "--datasource",
    required=True,
    metavar="URL",
    help="Database: postgresql://…, mysql://…, sqlite:///file, duckdb:///file.",
)
@argument("file", type=Path, default=None, metavar="[FILE]", help="File of statements.")
@option("--execute", "-e", default="", metavar="STATEMENTS", help="The statements themselves.")
@option(
    "--models",
    default="models",
    metavar="PLACE",
    help="Folder of trained models, or its URI in a store.",
)
@option(
    "--model-zoo",
    default="",
    metavar="DIR",
    help="Folder of further models to train. [default: model_zoo here, or /model_zoo]",
)
@option(
    "--key",
    default="",
    metavar="COLUMN",
    help="Column that identifies a row to predict. [default: a key of the table, or all columns]",
)
@option(
    "--work-dir",
    default="",
    metavar="DIR",
    help="Folder for the records that jobs read. [default: the system's temporary folder]",
)
@password_file_option
@output_option
@quiet_option
@takes(RUNNING)
def sql(  # noqa: PLR0913  (the parameters are the options of the command)
    database: str,
    file: Path | None,
    execute: str,
    models: str,
    model_zoo: str,
    key: str,
    work_dir: str,
    password_file: str,
    output_format: Format | None,
    quiet: bool,
    **options: Any,
) -> None:
    """Train models with the rows of a SELECT, and predict columns of tables.

    TRAIN keeps a model by its name, EVALUATE measures it, PREDICT writes a column. The SELECT is
    the database's own. On a terminal, without -e and a file, statements are typed at a prompt.
    """
    with errors_as_output(output_format):
        from edl.plugins.commands import terminal
        from edl.plugins.errors import usage
        from edl_sql.cli.results import lines_of
        from edl_sql.statement_context import SqlSettings
        from edl_sql.statement_runner import StatementRunner

        asks = file is None and not execute and sys.stdin.isatty()
        if not asks and (file is None) == (not execute):
            raise usage(
                "give either a file of statements or -e",
                where="-e",
                remedy='For example: -e "SHOW TRAIN my_model;"',
            )
        runner = StatementRunner(
            database,
            SqlSettings(models, model_zoo, key, password_file, work_dir),
            find_given(RUNNING, options),
            (lambda _: None) if quiet else terminal.message,
            progress=not quiet,
        )

        def run(text: str) -> None:
            if output_format in (Format.JSON, Format.YAML):
                results = [runner.run(statement) for statement in runner.parse(text)]
                print_result(results, output_format, ())
                return
            for statement in runner.parse(
                text
            ):  # what one shows, an error of the next leaves there
                result = runner.run(statement)
                models = result.get("models", [result])
                names = [str(each["model"]) for each in models if "model" in each]
                print_result(result, output_format, list(lines_of(result)), names)

        if asks:
            from edl_sql.cli.prompt import read_statements
            from edl_sql.language.tokens import ends_with_semicolon

            read_statements(lambda text: ends_with_semicolon(text, runner.dialect), run)
        else:
            run(execute if file is None else _read(file))


def _read(file: Path) -> str:
    from edl.plugins.errors import Problem
    from edl.plugins.files import read_input

    try:
        return read_input(file).decode()
    except OSError as error:
        reason, remedy = f"cannot be read: {error.strerror}", "Check its name and permissions."
    except UnicodeDecodeError:
        reason, remedy = "is not UTF-8", "Write it as UTF-8 text."
    raise Problem(
        "DATA_UNREADABLE",
        f"the file of statements {reason}",
        where=str(file),
        remedy=remedy,
    )
