"""CSV files behind the reader port: a record is the bytes of a line, without its end."""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from recordio.errors import DamagedFile, NoHeader
from recordio.formats.ranges import RangeReader
from recordio.source import Hint, Index
from recordio.storage.range_cache import RangeCache
from recordio.storage.stream import WINDOW, Stream, streaming

_BLOCK_RECORDS = 1024
"""The number of records in a block."""

_HEADER_BYTES = 64 << 10
"""The size of the first request for the header line."""

_ROWS = 1000
"""Rows that a doubtful header is compared with."""

_MAX_LINE = 64 << 20
_BOM = b"\xef\xbb\xbf"
_JSON = re.compile(rb'(\xef\xbb\xbf)?\s*(\[\s*$|(\[\s*)?\{\s*("[^"]*"\s*:|\}|$))')


MISSING = frozenset(("", "na", "n/a", "null", "none", "?", "-"))
"""Fields, in lower case, that stand for a missing value."""


def split_row(row: bytes) -> list[str]:
    """Return the fields of a row; none if the row is no CSV, such as a bare carriage return.

    Bytes that are not UTF-8 come as surrogates, which ``surrogateescape`` makes bytes again.
    """
    try:
        return next(csv.reader([row.decode("utf-8", errors="surrogateescape")]), [])
    except csv.Error:
        return []


def is_text(cell: str) -> bool:
    """Whether a field is neither a number nor stands for a missing value."""
    if "_" in cell:  # Python takes 1_000 for a number
        return True
    try:
        float(cell or 0)
    except ValueError:
        return cell.strip().lower() not in MISSING
    return False


def is_not_finite(cell: str) -> bool:
    """Whether a field is an infinity or a NaN."""
    try:
        return not math.isfinite(float(cell))
    except ValueError:
        return False


_ADD_NAMES = (
    "Write a line with the names of the columns above it, such as id,price,label. If these "
    "are the names, use names that are no numbers, such as column_0."
)
_NAME_ONCE = "Give each column a name of its own."
_NAME_INDEX = (
    "Give each column a name. pandas writes its index as a first column without one: write the "
    "table with to_csv(FILE, index=False)."
)
_FROM_UTF_16 = "Save it as CSV UTF-8, or convert it: iconv -f UTF-16 -t UTF-8 OLD.csv > NEW.csv"


def check_header(uri: str, names: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Refuse a first line that is a row of the table, which would be lost as its header.

    Args:
        uri: the file.
        names: the cells of the first line.
        rows: those of the lines after it; some are read if the first line alone does not tell.

    Raises:
        NoHeader: all names are numbers; or one is a decimal number; or one is a whole number, such
            as a year, and another is a value of its own column.
    """
    numbers = [_is_number(name) for name in names if name]
    if not any(numbers):
        return
    if all(numbers):
        raise NoHeader(
            uri, "the first line must name the columns, but has only numbers", _ADD_NAMES
        )
    if decimal := next((name for name in names if _is_decimal(name)), ""):
        reason = f"but has {decimal!r}, which is a number"
        raise NoHeader(uri, f"the first line must name the columns, {reason}", _ADD_NAMES)
    texts = {at: name for at, name in enumerate(names) if name and not _is_number(name)}
    for row in itertools.islice(rows, _ROWS):
        for at, name in texts.items():
            if at < len(row) and row[at].strip() == name:
                reason = f"but has numbers, and {name!r}, which is a value of later rows"
                raise NoHeader(uri, f"the first line must name the columns, {reason}", _ADD_NAMES)


def join_row(fields: Iterable[Any]) -> bytes:
    """Return a row with these fields, quoted where need be: what ``split_row`` takes apart."""
    text = io.StringIO()
    # The writer quotes a line end within a field only if its own line end has that character.
    csv.writer(text, lineterminator="\r\n").writerow(fields)
    return text.getvalue().removesuffix("\r\n").encode("utf-8", errors="surrogateescape")


class CsvSource(RangeReader):
    """A CSV file; a quoted field may hold line ends. Empty lines are not records."""

    format = "csv"

    def __init__(
        self,
        uri: str,
        version: str = "",
        cache: RangeCache | None = None,
        *,
        header: bool = True,
    ) -> None:
        super().__init__(uri, version, cache)
        self._header = header
        self._columns: tuple[str, ...] | None = None

    def _open_again(self) -> CsvSource:
        return CsvSource(self.uri, header=self._header)

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The names of the columns, from the header line; None without one.

        Raises:
            NoHeader: the first line is a row or UTF-16, or a name is missing or comes twice.
            DamagedFile: it is no text at all.
        """
        if self._header and self._columns is None:
            with streaming(self.uri, pin=self._pin, wanted=(0, _HEADER_BYTES)) as stream:
                lines = (line for _, line in self._lines(stream, -1))
                self._columns = self._names(next(lines, b""), map(split_row, lines))
        return self._columns

    def _names(self, line: bytes, rows: Iterable[Sequence[str]]) -> tuple[str, ...]:
        def header_error(reason: str) -> DamagedFile:
            return DamagedFile(self.uri, None, 0, f"the first line {reason}")

        try:
            text = line.decode()
        except UnicodeDecodeError:
            if line[:2] in (b"\xff\xfe", b"\xfe\xff"):
                raise NoHeader(self.uri, "the text is UTF-16, not UTF-8", _FROM_UTF_16) from None
            raise header_error("is not UTF-8 text") from None
        if is_json(line):
            raise header_error("is JSON, not the names of columns")
        try:
            names = tuple(name.strip() for name in next(csv.reader([text]), []))
        except csv.Error as error:
            raise header_error(f"cannot be read: {error}") from error
        check_header(self.uri, names, rows)
        duplicates = sorted({name for name in names if names.count(name) > 1})
        if "" in names or duplicates:
            reason, remedy = "a name is missing", _NAME_INDEX
            if duplicates and "" not in duplicates:
                reason, remedy = f"{', '.join(map(repr, duplicates))} twice", _NAME_ONCE
            raise NoHeader(self.uri, f"the first line must name each column once: {reason}", remedy)
        return names

    def _scan(self) -> Index:
        _ = self.columns
        first, offsets, records = [], [], 0
        with streaming(self.uri, pin=self._pin) as stream:
            stream.checksum = 0
            for offset, _ in self._records(stream, 0, 0):
                if records % _BLOCK_RECORDS == 0:
                    first.append(records)
                    offsets.append(offset)
                records += 1
            return Index(records, stream.offset, tuple(first), tuple(offsets), stream.checksum)

    def _blocks(self, start: int, stop: int, hint: Hint, end: int) -> Iterator[list[bytes]]:
        at, offset = hint
        if offset == 0:
            _ = self.columns
        block: list[bytes] = []
        with streaming(self.uri, pin=self._pin, wanted=(offset, end)) as stream:
            try:
                for _, line in self._records(stream, at, offset):
                    if at >= start:
                        block.append(line)
                        if len(block) == _BLOCK_RECORDS:
                            yield block
                            block = []
                    at += 1
                    if at >= stop:
                        break
            except DamagedFile:
                if block:
                    yield block
                raise
        if block:
            yield block

    def place(self, record: int, hint: Hint | None = None) -> str:
        return f"{self.uri}:{self._line_of(record, hint)}"

    def _line_of(self, record: int, hint: Hint | None) -> int:
        """Return the number of the line where a record begins, as editors count: from 1."""
        at, start = self.index().block(record) if hint is None else hint
        with streaming(self.uri, pin=self._pin) as stream:
            rows = itertools.islice(self._records(stream, at, start), record - at, None)
            begun, _ = next(rows, (start, b""))
        with streaming(self.uri, pin=self._pin) as stream:
            lines = 1
            while stream.offset < begun:
                lines += stream.read(min(WINDOW, begun - stream.offset)).count(b"\n")
            return lines

    def _records(self, stream: Stream, number: int, offset: int) -> Iterator[tuple[int, bytes]]:
        stream.skip_to(offset)
        if not self._header or offset:
            return self._lines(stream, number)
        lines = self._lines(stream, -1)
        next(lines, None)
        return lines

    def _lines(self, stream: Stream, number: int) -> Iterator[tuple[int, bytes]]:
        """Yield offset and content of each line that is not empty; the header is line -1."""
        offset = begun = stream.offset
        rest = b""
        parts: list[bytes] = []  # the lines so far of a quoted field that continues
        length = 0  # their total length
        last = False
        while not last:
            window = stream.read(WINDOW)
            last = not window
            lines = (rest + window).split(b"\n")
            # The bytes after the last line end are a whole line only at the end of the file.
            rest = lines.pop() if not last else b""
            if length + len(rest) > _MAX_LINE:
                raise self._endless_line(number, begun)
            for line in lines:
                if offset == 0 and line.startswith(_BOM):
                    line = line[len(_BOM) :]
                    offset = begun = len(_BOM)
                offset += len(line) + 1
                if (parts or b'"' in line) and ends_quoted(line, bool(parts)):
                    parts.append(line)
                    length += len(line) + 1
                    if length > _MAX_LINE:
                        raise self._endless_line(number, begun)
                    continue
                if parts:
                    line = b"\n".join((*parts, line))
                    parts, length = [], 0
                line = line.removesuffix(b"\r")
                if line:
                    yield begun, line
                    number += 1
                begun = offset
        if parts:
            raise self._endless_line(number, begun)

    def _endless_line(self, number: int, offset: int) -> DamagedFile:
        record = None if number < 0 else number
        reason = "a line or quoted field does not end"
        return DamagedFile(self.uri, record, offset, reason, "record")


def is_json(start: bytes) -> bool:
    """Tell whether a file that begins like this is JSON or JSON Lines."""
    return _JSON.match(start) is not None


def ends_quoted(line: bytes, within: bool) -> bool:
    """Tell whether a line ends within a quoted field.

    Args:
        line: the line.
        within: whether it begins within a quoted field.
    """
    at = 0
    while True:
        if not within:
            # Quotes count only where a field begins.
            if line[at : at + 1] != b'"':
                at = line.find(b",", at) + 1
                if at == 0:
                    return False
                continue
            at += 1
            within = True
        at = line.find(b'"', at) + 1
        if at == 0:
            return True
        if line[at : at + 1] == b'"':
            at += 1
            continue
        within = False
        at = line.find(b",", at) + 1
        if at == 0:
            return False


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_decimal(text: str) -> bool:
    """Whether a text is a finite number that is not written as a whole one."""
    return _is_number(text) and math.isfinite(float(text)) and not text.lstrip("+-").isdecimal()
