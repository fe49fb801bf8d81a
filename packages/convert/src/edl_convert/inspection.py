"""``edl data inspect``: what is in a file of records."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import recordio
import recordio.example
from edl.plugins.data import data_files
from edl.plugins.texts import count, one_line, plural, size
from edl_convert import source_files
from edl_convert.formats import InspectedFormat
from edl_convert.progress import show_progress
from edl_convert.record_checks import check_records
from edl_convert.tables import cannot_open, parquet_file
from edl_proto.errors import EdlError, ErrorCode
from recordio.example_rows import storable_columns
from recordio.formats.recordfile import RecordIOSource

_BLOCKS = {"parquet": "row group", "jsonl": "file"}
_SHOWN_VALUES = 8
_SHOWN_BYTES = 48
_SHOWN_TEXT = 200  # characters
_MAX_DECODED_BYTES = 32 << 20  # octets; a list of short texts takes a second for each megabyte
_EXAMPLE = b"\n"  # begins a tf.Example: a field 1 with a length


@dataclass(frozen=True, slots=True)
class FileReport:
    """One file.

    Attributes:
        blocks: chunks of RecordIO, row groups of Parquet, or what else is read at once.
        compressors: blocks by compressor; empty if the format has none.
        first: the first record, decoded: features by name, or columns, or its text; None if
            there is no record.
        checked: records whose CRC or layout was verified; None without ``check``.
    """

    file: str
    format: str
    records: int
    nbytes: int
    blocks: int
    compressors: dict[str, int]
    first: Any
    first_is: str
    checked: int | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "format": self.format,
            "records": self.records,
            "bytes": self.nbytes,
            "blocks": self.blocks,
            "compressors": self.compressors,
            "first_record": self.first,
            "first_record_is": self.first_is,
            "checked_records": self.checked,
        }


def inspect(file: str, form: str, check: bool) -> FileReport:
    """Inspect a file.

    Args:
        form: its format; empty: by name and content.
        check: read everything and verify it.

    Raises:
        EdlError: DATA_NOT_FOUND, DATA_UNREADABLE or DATA_DAMAGED.
    """
    form = form or _table_format(file)
    data_files.readable_size(file, "FILE")
    if form == InspectedFormat.PARQUET:
        return _inspect_parquet(file, check)
    if form == InspectedFormat.JSONL:
        return _inspect_json_lines(file, check)
    try:
        source = recordio.open_source(file, format=form or None)
        index = source.index()
        first = next(iter(source.read(0, 1)), None)
        checked = None
        if check:
            with show_progress(index.records, quiet=False) as report:
                checked = check_records(source, first, report)
    except recordio.RecordError as error:
        raise data_files.record_error(error, file) from None
    compressors: Counter[str] = Counter()
    if isinstance(source, RecordIOSource):
        compressors.update(header.compressor.name.lower() for header in source.headers())
    decoded, kind = _decode(first, source.columns)
    return FileReport(
        file=file,
        format=source.format,
        records=index.records,
        nbytes=index.nbytes,
        blocks=len(index.offsets),
        compressors=dict(compressors),
        first=decoded,
        first_is=kind,
        checked=checked,
    )


def _table_format(file: str) -> str:
    """Return the format of a file that edl writes but no job reads; empty for all others."""
    suffix = os.path.splitext(file)[1].lower().removeprefix(".")
    return suffix if suffix in (InspectedFormat.PARQUET, InspectedFormat.JSONL) else ""


def _inspect_parquet(file: str, check: bool) -> FileReport:
    with parquet_file(file) as table:
        meta = table.metadata
        groups = [meta.row_group(index) for index in range(meta.num_row_groups)]
        packed = Counter(
            group.column(0).compression.lower() for group in groups if group.num_columns
        )
        rows = next(iter(table.iter_batches(batch_size=1)), None)
        first = rows.to_pylist()[0] if rows is not None and rows.num_rows else None
        # The type of a list's values: how many there are is shown, too.
        types = {
            column.name: str(getattr(column.type, "value_type", column.type))
            for column in table.schema_arrow
        }
        storable = storable_columns(table.schema_arrow)
        left_out = [name for name in table.schema_arrow.names if name not in storable]
        read = sum(batch.num_rows for batch in table.iter_batches()) if check else None
    return FileReport(
        file=file,
        format=InspectedFormat.PARQUET,
        records=meta.num_rows,
        nbytes=source_files.size(file),
        blocks=len(groups),
        compressors=dict(packed),
        first=None if first is None else {n: _plain(v, types[n]) for n, v in first.items()},
        first_is="nothing" if first is None else _name_row(left_out),
        checked=read,
    )


def _name_row(left_out: Sequence[str]) -> str:
    """Return what the first record is, with the columns that jobs do not read."""
    return f"row; jobs do not read {', '.join(left_out)}" if left_out else "row"


def _inspect_json_lines(file: str, check: bool) -> FileReport:
    first: Any = None
    records = at = 0
    try:
        with source_files.open_text(file) as text:
            for line in text:
                at += 1
                if not line.strip():
                    continue
                if check or not records:
                    value = json.loads(line)
                    first = value if not records else first
                records += 1
    except OSError as error:
        raise cannot_open(error, file) from None
    except (ValueError, RecursionError) as error:
        what = "it is nested too deeply" if isinstance(error, RecursionError) else error
        # Text that is not UTF-8 is noticed while the next line is read.
        number = at + isinstance(error, UnicodeDecodeError)
        raise EdlError(
            ErrorCode.DATA_DAMAGED,
            f"a line is not JSON: {what}",
            where=f"{file}:{number}",
            remedy="Write the file again.",
        ) from None
    if isinstance(first, dict):
        first = {name: _plain(value, _json_type(value)) for name, value in first.items()}
    return FileReport(
        file=file,
        format=InspectedFormat.JSONL,
        records=records,
        nbytes=source_files.size(file),
        blocks=1 if records else 0,
        compressors={},
        first=first if first is None or isinstance(first, dict) else str(first),
        first_is="object" if isinstance(first, dict) else "nothing" if first is None else "value",
        checked=records if check else None,
    )


def _json_type(value: Any) -> str:
    one = value[0] if isinstance(value, list) and value else value
    names = {bool: "bool", int: "int", float: "float", str: "text", type(None): "null"}
    return names.get(type(one), type(one).__name__)


def _plain(value: Any, kind: str) -> dict[str, Any]:
    """Return a value of a table as a feature."""
    if isinstance(value, list):
        return {"type": kind, "values": len(value), "first": value[:_SHOWN_VALUES]}
    shown = value[:_SHOWN_BYTES].hex(" ") if isinstance(value, bytes) else value
    return {"type": kind, "values": 1, "first": shown}


def _decode(record: bytes | None, columns: tuple[str, ...] | None) -> tuple[Any, str]:
    if record is None:
        return None, "nothing"
    if len(record) > _MAX_DECODED_BYTES:
        return record[:_SHOWN_BYTES].hex(" "), f"{size(len(record))}, too large to be decoded here"
    if columns is None and record.startswith(_EXAMPLE):
        try:
            features = recordio.example.decode(record)
        except recordio.RecordError:
            features = {}
        if features:
            return {name: _feature(value) for name, value in features.items()}, "tf.Example"
    try:
        text = record.decode()
    except UnicodeDecodeError:
        return record[:_SHOWN_BYTES].hex(" "), f"{len(record)} bytes"
    if columns is not None:
        return text.rstrip("\r\n"), f"text of columns {', '.join(columns)}"
    return text, "text"


def _feature(value: recordio.example.Value) -> dict[str, Any]:
    if isinstance(value, np.ndarray):
        return {
            "type": "int64" if value.dtype.kind == "i" else "float",
            "values": len(value),
            "first": value[:_SHOWN_VALUES].tolist(),
        }
    about = {"type": "bytes", "values": len(value), "length": len(value[0]) if value else 0}
    if len(value) == 1:
        return {**about, "first": _text(value[0])}
    return {**about, "first": [_text(one) for one in value[:_SHOWN_VALUES]]}


def _text(value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = ""
    return text if text.isprintable() and (text or not value) else value[:_SHOWN_BYTES].hex(" ")


def _format_value(value: Any) -> str:
    """Format a value on one line. Whole numbers are often identifiers, so they keep all digits."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return one_line(text if len(text) <= _SHOWN_TEXT else f"{text[:_SHOWN_TEXT]}...")


def _length(report: FileReport) -> str:
    # The positions of a topic are offsets, of which transactions take some.
    is_topic = report.format == "kafka"
    return plural(report.nbytes, "offset") if is_topic else size(report.nbytes)


def lines(report: FileReport) -> list[str]:
    """Return a report as lines of text."""
    packed = ", ".join(f"{number} {name}" for name, number in report.compressors.items())
    text = [
        report.file,
        f"  {report.format}, {plural(report.records, 'record')}, {_length(report)},"
        f" {plural(report.blocks, _BLOCKS.get(report.format, 'chunk'))}"
        + (f" ({packed})" if packed else ""),
    ]
    if report.checked is not None:
        text.append(f"  checked: all {count(report.checked)} records are whole")
    text.append(f"  first record: {report.first_is}")
    if isinstance(report.first, dict):
        names = {name: one_line(name) for name in report.first}
        width = max(map(len, names.values()), default=0)
        for name, feature in report.first.items():
            many = f"[{feature['values']}]" if feature["values"] != 1 else ""
            kind = feature["type"] + many
            shown = feature["first"]
            if isinstance(shown, list):
                dots = ", ..." if feature["values"] > len(shown) else ""
                shown = ", ".join(map(_format_value, shown)) + dots
            elif not isinstance(shown, float):
                shown = _format_value(shown)
            text.append(f"    {names[name]:<{width}}  {kind:<12} {shown}".rstrip())
    elif report.first is not None:
        text.append(f"    {_format_value(report.first)}")
    # Files and columns may have any name: none adds a line of its own.
    return [one_line(line) for line in text]
