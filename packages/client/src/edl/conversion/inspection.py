"""``edl data inspect``: what is in a file of records."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

import recordio
import recordio.example
from edl.core.quantities import count, plural, size
from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2
from recordio.recordfile import RecordIOSource

_SHOWN_VALUES = 8
_SHOWN_BYTES = 48
_MOST_DECODED = 32 << 20  # octets; a list of short texts takes a second for each megabyte
_EXAMPLE = b"\n"  # begins a tf.Example: a field 1 with a length


@dataclass(frozen=True, slots=True)
class Report:
    """One file.

    Attributes:
        blocks: chunks of RecordIO, or what else is read at once.
        compressors: chunks by compressor; empty if the format has none.
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


def inspect(file: str, form: str, check: bool) -> Report:
    """Look into a file.

    Args:
        form: its format; empty: by name and content.
        check: read everything and verify it.

    Raises:
        EdlError: DATA_NOT_FOUND, DATA_UNREADABLE or DATA_DAMAGED.
    """
    try:
        source = recordio.open_source(file, format=form or None)
        index = source.index()
        first = next(iter(source.read(0, 1)), None)
        checked = None
        if check:
            checked = sum(len(block) for block in source.read_blocks(0, index.records))
    except recordio.DamagedFile as error:
        chunk = "" if error.chunk is None else f"chunk {error.chunk}, "
        raise EdlError(
            error_pb2.DATA_DAMAGED,
            f"the file is damaged: {error.reason}",
            where=f"{error.uri}: {chunk}offset {error.offset}",
            remedy="Fetch or write it again; the records before this offset can be read.",
        ) from None
    except recordio.RecordError as error:
        raise EdlError(
            error_pb2.DATA_UNREADABLE,
            str(error),
            where=file,
            remedy="edl data convert reads CSV, Parquet, TFRecord, images and idx files.",
        ) from None
    compressors: Counter[str] = Counter()
    if isinstance(source, RecordIOSource):
        compressors.update(header.compressor.name.lower() for header in source.headers())
    decoded, kind = _decode(first, source.columns)
    return Report(
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


def _decode(record: bytes | None, columns: tuple[str, ...] | None) -> tuple[Any, str]:
    if record is None:
        return None, "nothing"
    if len(record) > _MOST_DECODED:
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
    shown = value[0] if value else b""
    try:
        text = shown.decode()
        readable = text.isprintable()
    except UnicodeDecodeError:
        readable = False
    first = text if readable else shown[:_SHOWN_BYTES].hex(" ")
    return {"type": "bytes", "values": len(value), "length": len(shown), "first": first}


def lines(report: Report) -> list[str]:
    """For a person."""
    packed = ", ".join(f"{number} {name}" for name, number in report.compressors.items())
    text = [
        report.file,
        f"  {report.format}, {plural(report.records, 'record')}, {size(report.nbytes)},"
        f" {plural(report.blocks, 'chunk')}" + (f" ({packed})" if packed else ""),
    ]
    if report.checked is not None:
        text.append(f"  checked: all {count(report.checked)} records are whole")
    text.append(f"  first record: {report.first_is}")
    if isinstance(report.first, dict):
        width = max(len(name) for name in report.first)
        for name, feature in report.first.items():
            many = f"[{feature['values']}]" if feature["values"] != 1 else ""
            kind = feature["type"] + many
            shown = feature["first"]
            if isinstance(shown, list):
                dots = ", ..." if feature["values"] > len(shown) else ""
                shown = ", ".join(f"{value:g}" for value in shown) + dots
            text.append(f"    {name:<{width}}  {kind:<12} {shown}")
    elif report.first is not None:
        text.append(f"    {report.first[:200]}")
    return text
