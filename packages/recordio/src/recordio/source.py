"""The reader port: any file of records, read by ranges."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from recordio.errors import RecordError

Hint = tuple[int, int]
"""First record and byte offset of a block at or before the range that is to be read."""


@dataclass(frozen=True, slots=True)
class Index:
    """Where the blocks of a file are; a block is the least that is read at once.

    Attributes:
        records: in the whole file.
        nbytes: size of the file; of its plain content if it is gzip as a whole.
        first_records: number of each block's first record, ascending.
        offsets: where each block begins, in bytes of the same.
    """

    records: int
    nbytes: int
    first_records: tuple[int, ...]
    offsets: tuple[int, ...]

    def block(self, record: int) -> Hint:
        """The block that holds a record."""
        at = bisect.bisect_right(self.first_records, record) - 1
        return (self.first_records[at], self.offsets[at]) if at >= 0 else (0, 0)


class Source(Protocol):
    """A file of records.

    Every method raises ``DamagedFile`` where the file is damaged and ``UnreadableFile`` where
    it cannot be read.
    """

    @property
    def uri(self) -> str: ...

    @property
    def format(self) -> str:
        """recordio, tfrecord or csv."""

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Names of the columns, for CSV."""

    def count(self) -> int:
        """Number of records."""

    def index(self) -> Index:
        """Where the blocks are; made once, as cheaply as the format allows."""

    def read(
        self, start: int, stop: int, *, hint: Hint | None = None, exact: bool = False
    ) -> Iterator[bytes]:
        """Records ``start`` to ``stop`` (exclusive, and at most to the end)."""

    def read_blocks(
        self, start: int, stop: int, *, hint: Hint | None = None, exact: bool = False
    ) -> Iterator[list[bytes]]:
        """The same, some at a time: the quick way.

        Args:
            hint: from ``index().block(start)``, also of another process; then the file need not
                be indexed here.
            exact: whether it is an error that the file ends before ``stop``.

        Raises:
            RecordError: the range begins before record 0 or before the hint, or ends too early.
        """


def open_source(uri: str, *, format: str | None = None, csv_header: bool = True) -> Source:
    """Open a file of records.

    Args:
        uri: path or URI.
        format: recordio, tfrecord or csv; None: by name and content.
        csv_header: whether the first line of a CSV file names its columns.

    Raises:
        UnreadableFile: it cannot be opened.
        RecordError: unknown format.
    """
    from recordio.csvfile import CsvSource
    from recordio.recordfile import RecordIOSource
    from recordio.tfrecord import TFRecordSource

    match format or sniff(uri):
        case "recordio":
            return RecordIOSource(uri)
        case "tfrecord":
            return TFRecordSource(uri)
        case "csv":
            return CsvSource(uri, header=csv_header)
        case other:
            raise RecordError(f"{uri}: unknown format {other!r}; there are recordio, tfrecord, csv")


_BY_NAME = {
    ".recordio": "recordio",
    ".rio": "recordio",
    ".tfrecord": "tfrecord",
    ".tfrecords": "tfrecord",
    ".csv": "csv",
}


def named_format(uri: str) -> str | None:
    """The format that a file's name tells, if it does."""
    name = uri.lower().removesuffix(".gz")
    return next((format for end, format in _BY_NAME.items() if name.endswith(end)), None)


def sniff(uri: str) -> str:
    """The format of a file: by its name, else by its first bytes.

    Raises:
        UnreadableFile: it cannot be opened.
        RecordError: it is none of the known formats, or a RecordIO file that is packed again.
    """
    from recordio.chunks import MAGIC
    from recordio.stream import is_gzip, streaming
    from recordio.tfrecord import looks_like_tfrecord

    magic = MAGIC.to_bytes(4, "little")
    named = named_format(uri)
    if named is not None and not (named == "recordio" and uri.lower().endswith(".gz")):
        return named
    with streaming(uri, lambda _, start: is_gzip("", start)) as stream:
        packed = stream.left is None
        start = stream.read(4096)
    if start[:4] == magic and packed:
        raise RecordError(
            f"{uri}: a RecordIO file within gzip; unpack it (its chunks can be gzip themselves)"
        )
    if not start or start[:4] == magic:
        return "recordio"
    if looks_like_tfrecord(start):
        return "tfrecord"
    if _is_text(start) and b"," in start.split(b"\n", 1)[0]:
        return "csv"
    raise RecordError(
        f"{uri}: neither its name nor its first bytes tell a format; name one of "
        "recordio, tfrecord, csv"
    )


def _is_text(start: bytes) -> bool:
    """Whether bytes are the beginning of a UTF-8 text."""
    control = set(start) & (set(range(32)) - set(b"\t\n\r\f"))
    try:
        # A character may be cut at the end of what was read.
        start[: max(len(start) - 3, 1)].decode()
    except UnicodeDecodeError as error:
        return not control and error.end >= len(start) - 3
    return not control
