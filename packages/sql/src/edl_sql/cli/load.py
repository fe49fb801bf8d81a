"""The command ``edl data load``."""

from __future__ import annotations

from edl.plugins.commands import (
    Format,
    command,
    errors_as_output,
    option,
    output_option,
    print_result,
    quiet_option,
)
from edl_convert.cli import password_file_option


@command(
    "load",
    examples="edl data load --from predictions.recordio --to postgresql://me@host/db \\\n"
    "    --table testdata --column predicted_salary --key id",
)
@option(
    "predictions",
    "--from",
    required=True,
    metavar="FILES",
    help="Predictions: a file, folder or pattern.",
)
@option(
    "--to",
    required=True,
    metavar="URL",
    help="Database to write to: postgresql://…, mysql://…, sqlite:///file.",
)
@option("--table", required=True, metavar="TABLE", help="Table, or schema.table, to write to.")
@option(
    "--column", required=True, metavar="COLUMN", help="Column to write; added if it is missing."
)
@option(
    "--key",
    default="id",
    metavar="COLUMN",
    help="Column that identifies a row, here and in the table.",
)
@option(
    "--prediction",
    default="prediction",
    metavar="NAME",
    help="Name of the value in the predictions.",
)
@password_file_option
@output_option
@quiet_option
def load(  # noqa: PLR0913  (the parameters are the options of the command)
    predictions: str,
    to: str,
    table: str,
    column: str,
    key: str,
    prediction: str,
    password_file: str,
    output_format: Format | None,
    quiet: bool,
) -> None:
    """Write predictions into a column of a database's table.

    Each prediction goes into the row with its key, all of them in one transaction. The predictions
    need the key: edl predict --keep id.
    """
    with errors_as_output(output_format):
        from edl.plugins.errors import usage
        from edl.plugins.texts import count, plural
        from edl_convert.progress import show_progress
        from edl_sql.databases.database import Database
        from edl_sql.tables.column_loader import load_column
        from edl_sql.tables.predictions import Predictions
        from edl_sql.tables.target_columns import Target

        named = {"--table": table, "--column": column, "--key": key, "--prediction": prediction}
        for option, name in named.items():
            if not name.strip():
                raise usage(f"{option} is empty", where=option, remedy="Name it.")
        database = Database(to, password_file)
        values = Predictions(predictions, key, prediction)
        with show_progress(None, quiet) as report:
            done = load_column(database, Target(table, column, key), values, report)
        lines = [f"{plural(done.rows, 'prediction')} in column {column} of {table}"]
        if done.column_added:
            lines.append(f"the column {column} is new")
        if done.others:
            lines.append(f"{count(done.others)} other rows have no prediction and are as they were")
        print_result(
            {
                "table": table,
                "column": column,
                "rows": done.rows,
                "other_rows": done.others,
                "column_added": done.column_added,
            },
            output_format,
            lines,
            [f"{table}.{column}"],
        )
