"""The errors of files of records."""

from __future__ import annotations


class RecordError(ValueError):
    """The base of all errors of records and of the files that hold them."""


class UnknownFormat(RecordError):
    """A file is none of the formats that are read.

    Attributes:
        uri: the file.
    """

    def __init__(self, uri: str) -> None:
        super().__init__(f"{uri} is neither RecordIO nor TFRecord nor CSV nor Parquet")
        self.uri = uri


class NoSuchData(RecordError):
    """No file matches a pattern of data files."""


class UnreadableFile(RecordError):
    """A file that matches cannot be opened or read: permission, a directory, a lost store."""


class MissingPackage(RecordError):
    """Reading a format needs a package that is not installed here.

    Attributes:
        package: its name, as pip knows it.
    """

    def __init__(self, uri: str, package: str) -> None:
        super().__init__(f"{uri}: reading it needs the package {package}, which is not installed")
        self.uri = uri
        self.package = package

    def __reduce__(self) -> tuple[type[MissingPackage], tuple[str, str]]:
        return type(self), (self.uri, self.package)


class ChangedFile(UnreadableFile):
    """A file is no longer the one that was first read.

    Attributes:
        uri: the file.
    """

    def __init__(self, uri: str) -> None:
        super().__init__(f"{uri} has changed since it was first read")
        self.uri = uri

    def __reduce__(self) -> tuple[type[ChangedFile], tuple[str]]:
        return type(self), (self.uri,)


class LostRecords(UnreadableFile):
    """Records of a range of a topic are not there any more.

    Attributes:
        uri: the range.
        reason: what has happened, for messages.
    """

    def __init__(self, uri: str, reason: str) -> None:
        super().__init__(f"{uri}: {reason}")
        self.uri = uri
        self.reason = reason

    def __reduce__(self) -> tuple[type[LostRecords], tuple[str, str]]:
        return type(self), (self.uri, self.reason)


class DamagedFile(RecordError):
    """A file is truncated, was changed, or does not have its format.

    Attributes:
        uri: the file.
        chunk: the number of the chunk (RecordIO), record (TFRecord, CSV) or row group (Parquet),
            from 0; None if the damage is outside of all, or the number is unknown.
        offset: where that chunk or record begins, in bytes of the plain content.
        reason: the kind of damage, for messages.
        unit: the unit that ``chunk`` counts: ``chunk``, ``record`` or ``row group``.
    """

    def __init__(
        self, uri: str, chunk: int | None, offset: int, reason: str, unit: str = "chunk"
    ) -> None:
        at = "" if chunk is None else f"{unit} {chunk}, "
        super().__init__(f"{uri}: {at}offset {offset}: {reason}")
        self.uri = uri
        self.chunk = chunk
        self.offset = offset
        self.reason = reason
        self.unit = unit

    def __reduce__(self) -> tuple[type[DamagedFile], tuple[object, ...]]:
        return type(self), (self.uri, self.chunk, self.offset, self.reason, self.unit)


class NoHeader(DamagedFile):
    """A CSV file is intact, but its first line does not name its columns.

    Attributes:
        remedy: what to do, for messages.
    """

    def __init__(self, uri: str, reason: str, remedy: str) -> None:
        super().__init__(uri, None, 0, reason)
        self.remedy = remedy

    def __reduce__(self) -> tuple[type[NoHeader], tuple[object, ...]]:
        return type(self), (self.uri, self.reason, self.remedy)
