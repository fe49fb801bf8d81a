"""The Python API: ``elasticdl.convert_data``."""

from __future__ import annotations

from collections.abc import Sequence

from edl.plugins.errors import Problem, error_of
from edl_convert.formats import Compression
from edl_convert.origin import Origin, open_origin
from edl_convert.source import ConversionOptions
from edl_convert.writer import ConversionResult, FileLayout, check_layout, write
from edl_proto.errors import EdlError, ErrorCode

__all__ = ["ConversionResult", "FileLayout", "convert_data"]


def convert_data(  # noqa: PLR0913  (the parameters are the public interface)
    source: str | Sequence[str],
    *,
    output: str,
    query: str = "",
    columns: Sequence[str] = (),
    label: str = "",
    classes: Sequence[str] = (),
    keys: Sequence[str] = (),
    floats: Sequence[str] = (),
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
        floats: columns of a query that become floats also if they hold integers only.
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
        options = ConversionOptions(
            tuple(columns),
            label,
            classes=tuple(classes),
            keys=tuple(keys),
            floats=tuple(floats),
        )
        with open_origin(origin, options) as records:
            return write(records, place, layout, lambda _: None)
    except Problem as problem:
        raise error_of(problem) from None
