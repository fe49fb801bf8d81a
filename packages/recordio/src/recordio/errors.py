"""What can be wrong with a file of records."""

from __future__ import annotations


class RecordError(ValueError):
    """Something is wrong with records or with the file that holds them."""


class NoSuchData(RecordError):
    """Nothing matches a pattern of data files."""


class UnreadableFile(RecordError):
    """A file that matches cannot be opened or read: permission, a directory, a lost store."""


class DamagedFile(RecordError):
    """A file is cut short, was changed, or is not of its format.

    Attributes:
        uri: the file.
        chunk: number of the chunk (RecordIO) or record (TFRecord, CSV), from 0; None if the
            damage is in none.
        offset: where that chunk or record begins, in bytes.
        reason: what was found.
    """

    def __init__(self, uri: str, chunk: int | None, offset: int, reason: str) -> None:
        at = "" if chunk is None else f"chunk {chunk}, "
        super().__init__(f"{uri}: {at}offset {offset}: {reason}")
        self.uri = uri
        self.chunk = chunk
        self.offset = offset
        self.reason = reason

    def __reduce__(self) -> tuple[type[DamagedFile], tuple[str, int | None, int, str]]:
        return type(self), (self.uri, self.chunk, self.offset, self.reason)
