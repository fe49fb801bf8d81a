"""The log of a stream's splits: their order, on the disk before a record of them is read."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import overload

from edl_master.adapters.data import DataFile
from edl_runtime.files import flush
from edl_runtime.public_settings import without_passwords
from recordio.description import DataDescription, description_from_json


@dataclass(frozen=True, slots=True)
class SplitEntry:
    """A split as it was discovered.

    Attributes:
        uri: of the file, or of the range of a topic.
        records: how many it has.
        checksum: of its content.
        version: of the file; the id of the topic, if its brokers tell it.
        first_records, offsets, nbytes: as of its index, for a range of a topic.
    """

    uri: str
    records: int
    checksum: int
    version: str
    first_records: Sequence[int] = ()
    offsets: Sequence[int] = ()
    nbytes: int = 0


def describe(file: DataFile, *, with_index: bool) -> SplitEntry:
    """Return the entry of a file."""
    index = file.index
    entry = SplitEntry(file.uri, index.records, index.checksum, file.version)
    if not with_index:
        return entry
    return replace(
        entry, first_records=index.first_records, offsets=index.offsets, nbytes=index.nbytes
    )


def _write(entry: SplitEntry) -> str:
    about = {name: value for name, value in asdict(entry).items() if value or name in _NEEDED}
    return f"{json.dumps(about)}\n"


_NEEDED = ("uri", "records", "checksum", "version")


class SplitNames(Sequence[str]):
    """The names of splits without passwords, by their numbers; of old ones only the number."""

    def __init__(self) -> None:
        self._first = 0
        self._names: list[str] = []

    def __len__(self) -> int:
        return self._first + len(self._names)

    @overload
    def __getitem__(self, number: int) -> str: ...
    @overload
    def __getitem__(self, number: slice) -> list[str]: ...
    def __getitem__(self, number: int | slice) -> str | list[str]:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        if not 0 <= number < len(self):
            raise IndexError(number)
        return self._names[number - self._first] if number >= self._first else f"split {number}"

    def add(self, uris: Iterable[str]) -> None:
        """Add the names of the next splits."""
        self._names += map(without_passwords, uris)

    def forget(self, before: int) -> None:
        """Forget the names of the splits with smaller numbers."""
        del self._names[: max(0, before - self._first)]
        self._first = max(self._first, before)


class SplitLog:
    """The splits of a stream in the order of their discovery, on the disk.

    Args:
        path: one line of JSON for each split, in order; the first line describes their fields, and
            has the first records and what ``compact`` kept of splits that it left out.

    Attributes:
        path: as above.
        names: of all splits.
        first: the number of the first split that the file has.
        positions: what ``compact`` was given; empty if it never was called.
        description: of their columns or features; None: not known.
        sample: the first records.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names = SplitNames()
        self.first = 0
        self.positions: dict[str, int | str] = {}
        self.description: DataDescription | None = None
        self.sample: tuple[bytes, ...] = ()
        self._nbytes = 0
        """Of whole lines; what follows them was not written to its end, and so was not used."""
        if path.exists():
            self._nbytes = path.read_bytes().rfind(b"\n") + 1
        if self._nbytes:
            first, *lines = self._read_lines()
            about = json.loads(first)
            self.sample = tuple(map(base64.b64decode, about.pop("sample", ())))
            self.first = about.pop("first", 0)
            self.positions = about.pop("positions", {})
            self.description = description_from_json(about)
            self.names.forget(self.first)
            self.names.add(json.loads(line)["uri"] for line in lines)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def nbytes(self) -> int:
        """The size of the file."""
        return self._nbytes

    def _read_lines(self) -> list[bytes]:
        with self.path.open("rb") as file:
            return file.read(self._nbytes).splitlines()

    def append(
        self,
        entries: Sequence[SplitEntry],
        description: DataDescription | None,
        sample: Sequence[bytes] = (),
    ) -> None:
        """Add splits; when this returns, they are on the disk, and if it fails, none is added.

        Args:
            description: of the fields of all splits; a log that has splits keeps its own.
            sample: the first records; likewise.
        """
        content = "".join(map(_write, entries)).encode()
        is_new = not self._nbytes
        if is_new:
            content = _write_header(description, sample, 0, {}) + content
        with self.path.open("ab") as file:
            file.truncate(self._nbytes)  # of what an attempt on a full disk has left
            file.write(content)
        flush(self.path)
        if is_new:
            flush(self.path.parent)
            self.description, self.sample = description, tuple(sample)
        self._nbytes += len(content)
        self.names.add(entry.uri for entry in entries)

    def read(self, first: int) -> list[SplitEntry]:
        """Return the splits from a number on; not those that ``compact`` has left out."""
        if not self._nbytes:
            return []
        lines = self._read_lines()[1 + max(0, first - self.first) :]
        return [SplitEntry(**json.loads(line)) for line in lines]

    def compact(self, before: int, positions: Mapping[str, int | str]) -> None:
        """Leave out the splits with smaller numbers, which no master needs any more.

        Args:
            before: the number of the first split that stays.
            positions: what must be known of all that were ever discovered.
        """
        entries = self.read(before)
        content = _write_header(self.description, self.sample, before, positions)
        content += "".join(map(_write, entries)).encode()
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        temporary.write_bytes(content)
        flush(temporary)
        os.replace(temporary, self.path)
        flush(self.path.parent)
        self._nbytes, self.first, self.positions = len(content), before, dict(positions)
        self.names.forget(before)


def _write_header(
    description: DataDescription | None,
    sample: Sequence[bytes],
    first: int,
    positions: Mapping[str, int | str],
) -> bytes:
    about = dict(description.as_json()) if description else {}
    about["sample"] = [base64.b64encode(record).decode() for record in sample]
    if first:
        about |= {"first": first, "positions": dict(positions)}
    return f"{json.dumps(about)}\n".encode()
