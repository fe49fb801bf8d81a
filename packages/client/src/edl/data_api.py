"""The Python API of data: ``elasticdl.convert_data`` and ``load_data``."""

from __future__ import annotations

from collections.abc import Sequence

from edl import codec
from edl.adapters.databases import Database
from edl.conversion.column_loader import LoadResult, load_column
from edl.conversion.origin import Origin, open_origin
from edl.conversion.predictions import Predictions
from edl.conversion.source import ConversionOptions
from edl.conversion.target_columns import Target
from edl.conversion.writer import ConversionResult, FileLayout, check_layout, write
from edl.core.formats import Compression
from edl.core.problem import Problem
from edl_proto.errors import EdlError, ErrorCode

__all__ = ["ConversionResult", "LoadResult", "convert_data", "load_data"]


def convert_data(  # noqa: PLR0913  (the parameters are the public interface)
    source: str | Sequence[str],
    *,
    output: str,
    query: str = "",
    columns: Sequence[str] = (),
    label: str = "",
    classes: Sequence[str] = (),
    keys: Sequence[str] = (),
    password_file: str = "",
    layout: FileLayout | None = None,
) -> ConversionResult:
    """Write the rows of a query, or of files, as RecordIO files of ``tf.Example``.

    Args:
        source: with a query, the URL of a database; else files, folders or patterns.
        output: folder to make, or one file ``*.recordio``; a path, or the URI of a store.
        query: a SELECT.
        columns: those to convert; all by default.
        label: the column that becomes the feature ``label``.
        classes: the label's texts in the order of their numbers, for a query; by default those
            that there are, in alphabetical order.
        keys: columns of a query that identify rows: a number of theirs that a record cannot hold
            exactly is an error.
        password_file: file whose first line is the database's password.
        layout: how records are laid out in files; by default one file.

    Returns:
        What was written; ``result.schema`` describes the columns.

    Raises:
        EdlError: an argument is wrong, or the data cannot be read, converted or written.
    """
    files = (source,) if isinstance(source, str) else tuple(source)
    if query:
        if len(files) != 1:
            raise EdlError(
                ErrorCode.USAGE,
                f"a query reads one database, not {len(files)}",
                where="convert_data(source=...)",
                remedy="Name the URL of the database, such as postgresql://host/name.",
            )
        origin = Origin(database=files[0], query=query, password_file=password_file)
    else:
        origin = Origin(files=files)
    layout = layout or FileLayout(compression=Compression.SNAPPY)
    try:
        place = check_layout(output, layout)
        options = ConversionOptions(tuple(columns), label, classes=tuple(classes), keys=tuple(keys))
        with open_origin(origin, options) as records:
            return write(records, place, layout, lambda _: None)
    except Problem as problem:
        raise codec.error_of(problem) from None


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
        raise codec.error_of(problem) from None
