"""The Python API: ``elasticdl.load_data``."""

from __future__ import annotations

from edl.plugins.errors import Problem, error_of
from edl_sql.databases.database import Database
from edl_sql.tables.column_loader import LoadResult, load_column
from edl_sql.tables.predictions import Predictions
from edl_sql.tables.target_columns import Target

__all__ = ["LoadResult", "load_data"]


def load_data(
    predictions: str,
    *,
    to: str,
    table: str,
    column: str,
    key: str = "id",
    prediction: str = "prediction",
    password_file: str = "",
) -> LoadResult:
    """Write predictions into a column of a database's table, all of them or none.

    Args:
        predictions: a file, folder or pattern.
        to: the URL of the database.
        table: its name, or schema.table.
        column: is added if the table does not have it.
        key: the column that identifies a row, in the predictions and in the table.
        prediction: name of the value in the predictions.
        password_file: file whose first line is the database's password.

    Raises:
        EdlError: an argument is wrong, predictions and table do not fit each other, or the
            database refuses something.
    """
    try:
        values = Predictions(predictions, key, prediction)
        target = Target(table, column, key)
        return load_column(Database(to, password_file), target, values, lambda _: None)
    except Problem as problem:
        raise error_of(problem) from None
