"""CSV and Parquet: each row a record, each column a feature of its own name."""

from __future__ import annotations

import csv
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path, PurePosixPath
from typing import Any

import recordio.example
from edl.plugins.data import DELIMITERS, data_files, scheme
from edl.plugins.texts import plural
from edl_convert.column_types import (
    Cell,
    choose,
    column_kind,
    find_written_number,
    number_classes,
    read_cell,
    write_number,
)
from edl_convert.schema import ColumnType
from edl_convert.source import ConversionOptions
from edl_convert.source_files import open_bytes, open_text
from edl_proto.errors import EdlError, ErrorCode
from recordio import example_batch
from recordio.example_rows import as_plain
from recordio.formats.csvfile import check_header

_BATCH = 4096
_CSV_BATCH = 512
"""Rows of a CSV file, whose cells may be long."""
_SHOWN_VALUES = 200
"""Values of a column that tell whether its texts are numbers."""
_GUESSED_FROM = 50
"""Lines of a CSV file that its delimiter is guessed from."""
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
"""The first bytes of such texts."""

_MAX_CELL_LENGTH = 64 << 20
_TYPES = {
    Cell.EMPTY: ColumnType.UNKNOWN,
    Cell.INT: ColumnType.INTEGER,
    Cell.FLOAT: ColumnType.FLOAT,
    Cell.TEXT: ColumnType.STRING,
}


class CsvTableSource:
    """CSV files with one header line each, all with the same columns.

    The files are read twice: a column is of whole numbers, of floats or of text according to
    all of its cells. An empty cell of a column of numbers is a feature that is not there.
    """

    def __init__(self, files: Sequence[str], options: ConversionOptions) -> None:
        self.name = ", ".join(files)
        self._files = files
        self._delimiter = options.delimiter
        header = self._header(files[0])
        self._chosen = choose(header, options.columns, options.label, files[0])
        self._header_line = header
        kinds = [Cell.EMPTY for _ in self._chosen.places]
        seen: list[dict[str, None]] = [{} for _ in kinds]
        self.total: int | None = 0
        for batch in self._batches():
            self.total += len(batch)
            columns = list(zip(*(row for _, row in batch), strict=True))
            for known, cells in zip(seen, columns, strict=True):
                if len(known) < _SHOWN_VALUES:
                    known.update(dict.fromkeys(filter(str.strip, cells)))
            kinds = [column_kind(*each) for each in zip(kinds, columns, strict=True)]
        self._kinds = kinds
        self.warnings = tuple(
            f"the column {name} has texts, such as {text!r}, and no numbers. {write_number(text)}, "
            "if it is to have numbers."
            for number, (name, kind) in enumerate(zip(self._chosen.names, kinds, strict=True))
            if kind is Cell.TEXT and number != self._chosen.label
            if (text := find_written_number(list(seen[number]))) is not None
        )
        self.classes: Mapping[str, int] = {}
        self.image_shape = None
        if self._chosen.label is not None and options.numbers:
            kinds[self._chosen.label] = Cell.TEXT
        if self._chosen.label is not None and kinds[self._chosen.label] is Cell.TEXT:
            column = self._chosen.label
            texts = (row[column] for _, row in self._rows() if row[column].strip())
            self.classes = number_classes(texts, options.numbers)
            text = None if options.numbers else find_written_number(list(self.classes))
            if text is not None:
                place = next((where for where, row in self._rows() if row[column] == text), "")
                raise unreadable(
                    f"the labels are numbers, but not {text!r}, so that they would become "
                    f"{len(self.classes):,} classes",
                    place,
                    f"{write_number(text)} in the column {options.label}.",
                )
        self.types: Mapping[str, ColumnType] = {
            name: _TYPES[kind] for name, kind in zip(self._chosen.names, kinds, strict=True)
        }

    def records(self) -> Iterator[bytes]:
        for batch in self._batches():
            features: dict[str, Sequence[Any]] = {}
            columns = zip(*(row for _, row in batch), strict=True)
            for index, (name, kind, cells) in enumerate(
                zip(self._chosen.names, self._kinds, columns, strict=True)
            ):
                if index == self._chosen.label:
                    features[name] = self._labels(cells, [where for where, _ in batch])
                else:
                    features[name] = [read_cell(text, kind) for text in cells]
            yield from example_batch.encode(features)

    def _labels(self, cells: Sequence[str], places: Sequence[str]) -> list[Any]:
        """Return the label of each row; for texts, their numbers."""
        for text, where in zip(cells, places, strict=True):
            if not text.strip():
                raise unreadable("the label is empty", where, "Fill it in, or drop the row.")
        if self.classes:
            return [self.classes[text] for text in cells]
        assert self._chosen.label is not None
        kind = self._kinds[self._chosen.label]
        return [read_cell(text, kind) for text in cells]

    def _batches(self) -> Iterator[list[tuple[str, list[str]]]]:
        rows = self._rows()
        while batch := list(itertools.islice(rows, _CSV_BATCH)):
            yield batch

    def _header(self, file: str) -> list[str]:
        rows = (row for _, row in self._raw(file))
        for row in rows:
            names = [name.strip() for name in row]
            try:
                check_header(file, names, rows)
            except recordio.NoHeader as error:
                raise data_files.record_error(error, file) from None
            return names
        raise EdlError(
            ErrorCode.DATA_EMPTY,
            "the file has no header line",
            where=file,
            remedy="The first line names the columns.",
        )

    def _rows(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the wanted cells of every row, and where it is."""
        for file in self._files:
            rows = self._raw(file)
            _, header = next(rows, ("", []))
            if [name.strip() for name in header] != self._header_line:
                raise unreadable(
                    f"the columns are not those of {self._files[0]}",
                    f"{file}:1",
                    "Files of one conversion must have the same header.",
                )
            for where, row in rows:
                if len(row) != len(self._header_line):
                    wanted = len(self._header_line)
                    raise unreadable(
                        f"the row has {plural(len(row), 'cell')}, the header {wanted}",
                        where,
                        "Correct the row, or check the delimiter (--delimiter) and that quotes are "
                        "closed; a cell that contains the delimiter needs quotes.",
                    )
                yield where, [row[place] for place in self._chosen.places]

    def _raw(self, file: str) -> Iterator[tuple[str, list[str]]]:
        csv.field_size_limit(_MAX_CELL_LENGTH)
        delimiter = self._delimiter or guess_delimiter(file)
        reader = None
        try:
            with open_text(file) as text:
                reader = csv.reader(text, delimiter=delimiter, strict=True)
                for row in reader:
                    if row:
                        yield f"{file}:{reader.line_num}", row
        except OSError as error:
            raise cannot_open(error, file) from error
        except (UnicodeDecodeError, csv.Error) as error:
            if isinstance(error, UnicodeDecodeError) and error.object[:2] in _UTF_16:
                raise unreadable(
                    "the text is UTF-16, not UTF-8",
                    file,
                    "Convert it: iconv -f UTF-16 -t UTF-8 OLD.csv > NEW.csv",
                ) from error
            if isinstance(error, UnicodeDecodeError):
                raise unreadable(
                    f"the text is not UTF-8: it has the byte 0x{error.object[error.start]:02x}",
                    f"{file}:{_find_undecodable(file)}",
                    "Convert it: iconv -f WINDOWS-1252 -t UTF-8 OLD.csv > NEW.csv, or save it as "
                    "CSV UTF-8.",
                ) from error
            line = "" if reader is None else f":{reader.line_num}"
            raise unreadable(
                f"not a CSV file: {error}",
                f"{file}{line}",
                "Make it a UTF-8 text with one header line.",
            ) from error


def _find_undecodable(file: str) -> int:
    """Return the number of the first line that is not UTF-8."""
    with open_text(file, errors="surrogateescape") as text:
        for number, line in enumerate(text, 1):
            try:
                line.encode()
            except UnicodeEncodeError:
                return number
    return 1


class ParquetTableSource:
    """Parquet files. Numbers, texts, and lists of them; a null is a feature that is not there."""

    def __init__(self, files: Sequence[str], options: ConversionOptions) -> None:
        self.name = ", ".join(files)
        self._files = files
        self.total: int | None = 0
        names: list[str] | None = None
        types: list[ColumnType] = []
        for file in files:
            with parquet_file(file) as table:
                if names is None:
                    names = list(table.schema_arrow.names)
                    types = [_parquet_type(column.type) for column in table.schema_arrow]
                elif list(table.schema_arrow.names) != names:
                    raise unreadable(
                        f"the columns are not those of {files[0]}",
                        file,
                        "Files of one conversion must have the same columns.",
                    )
                self.total += table.metadata.num_rows
        self._chosen = choose(names or [], options.columns, options.label, files[0])
        self._columns = [(names or [])[place] for place in self._chosen.places]
        self.classes: Mapping[str, int] = self._number_labels(options.numbers)
        self.image_shape = None
        self.types: Mapping[str, ColumnType] = {
            name: types[place]
            for name, place in zip(self._chosen.names, self._chosen.places, strict=True)
        }

    def records(self) -> Iterator[bytes]:
        for where, row in self._rows(self._columns):
            features: dict[str, Any] = {}
            for index, (name, column) in enumerate(
                zip(self._chosen.names, self._columns, strict=True)
            ):
                value = row[column]
                if index == self._chosen.label:
                    if value is None or value in ("", b""):
                        raise unreadable(
                            "the label is empty", where, "Fill it in, or drop the row."
                        )
                    value = self.classes.get(value, value) if self.classes else value
                if value is not None:
                    features[name] = _parquet_feature(value, f"{where}, column {column}")
            yield recordio.example.encode(features)

    def _number_labels(self, known: Mapping[str, int]) -> Mapping[str, int]:
        if self._chosen.label is None:
            return {}
        column = self._columns[self._chosen.label]
        found: set[str] = set()
        for _, row in self._rows([column]):
            if isinstance(row[column], str):
                found.add(row[column])
            elif row[column] is not None:
                return {}
        return number_classes(found, known)

    def _rows(self, columns: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        import pyarrow

        for file in self._files:
            number = 0
            with parquet_file(file) as table:
                for batch in table.iter_batches(batch_size=_BATCH, columns=columns):
                    plain = zip(batch.column_names, map(as_plain, batch.columns), strict=True)
                    for row in pyarrow.table(dict(plain)).to_pylist():
                        yield f"{file}, row {number}", row
                        number += 1


def guess_delimiter(file: str) -> str:
    """Return the delimiter that splits the first rows into equally many cells, and the most.

    If none does, it is one that splits the header and more than half of the rows so: then some
    rows have lost a cell.
    """
    if PurePosixPath(file).suffix.lower() == ".tsv":
        return "\t"
    with suppress(OSError, UnicodeDecodeError), open_text(file) as text:
        start = list(itertools.islice(text, _GUESSED_FROM))
        return max(DELIMITERS, key=lambda sign: _rate_delimiter(start, sign))
    return ","


def _rate_delimiter(lines: Sequence[str], delimiter: str) -> tuple[int, int]:
    """Return how many of these lines a delimiter splits alike, and into how many cells.

    The first number is 2 if it splits all of them so, and 1 if it does so with more than half.
    """
    try:
        rows = [row for row in csv.reader(lines, delimiter=delimiter) if row]
    except csv.Error:
        return 0, 0
    # The last row may continue in the next line.
    widths = [len(row) for row in (rows[:-1] if len(rows) > 1 else rows)]
    if not widths or widths[0] < 2:
        return 0, 0
    alike = widths.count(widths[0])
    return (2 if alike == len(widths) else int(2 * alike > len(widths))), widths[0]


@contextmanager
def parquet_file(file: str) -> Iterator[Any]:
    """Yield an open Parquet file, a ``pyarrow.parquet.ParquetFile``.

    Raises:
        EdlError: DATA_UNREADABLE, also from within the context.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        opened = open_bytes(file) if scheme(file) else nullcontext(file)
        with opened as content, pyarrow.parquet.ParquetFile(content) as table:
            yield table
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno:  # without a number: of the content
            raise cannot_open(error, file) from error
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise unreadable(f"not a Parquet file: {first}", file, "Write it again.") from error


def _parquet_type(arrow: Any) -> ColumnType:
    """Return the type of values or of the items of lists; UNKNOWN for what no record can hold."""
    from pyarrow import types

    arrow = getattr(arrow, "value_type", arrow)
    for holds, known in (
        (types.is_boolean, ColumnType.BOOLEAN),
        (types.is_integer, ColumnType.INTEGER),
        (types.is_floating, ColumnType.FLOAT),
        (types.is_string, ColumnType.STRING),
        (types.is_large_string, ColumnType.STRING),
        (types.is_binary, ColumnType.BYTES),
        (types.is_large_binary, ColumnType.BYTES),
        (types.is_decimal, ColumnType.DECIMAL),
        (types.is_date, ColumnType.DATE),
        (types.is_timestamp, ColumnType.TIMESTAMP),
    ):
        if holds(arrow):
            return known
    return ColumnType.UNKNOWN


def _parquet_feature(value: Any, where: str) -> Any:
    items = value if isinstance(value, list) else [value]
    kinds = {type(item) for item in items}
    texts = kinds <= {str, bytes}
    if kinds <= {bool, int, float, str, bytes} and (texts or not kinds & {str, bytes}):
        return value
    raise unreadable(
        f"a value of type {type(value).__name__} cannot be stored in a tf.Example",
        where,
        "Leave the column out with --columns, or write it as a number or a text.",
    )


def unreadable(what: str, where: str, remedy: str) -> EdlError:
    """Return the error for a source that cannot be converted."""
    return EdlError(ErrorCode.DATA_UNREADABLE, what, where=where, remedy=remedy)


def cannot_open(error: OSError, file: Path | str) -> EdlError:
    """Return the error for a source that the system does not open or read."""
    reason = os.strerror(error.errno) if error.errno else error  # pyarrow has texts of its own
    return unreadable(f"the file cannot be read: {reason}", str(file), data_files.access(error))
