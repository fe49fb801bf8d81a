"""The files of a stream: complete files that keep arriving in a folder, or in a store.

A job numbers them in the order in which it discovers them, and writes that order down before it
reads any record: so every later master of the job finds the same records at the same position, and
no file is read twice. What a file contains must not change, and a file must be there until its
records have trained.
"""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import recordio
from edl_master.adapters.data import DataFile, DataSet, list_files, locate, open_files
from edl_master.adapters.data_comparison import ComparedData, compare_file
from edl_master.core.effects import LogEvent, Range, Severity
from edl_master.core.windows import Split
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import task_pb2
from edl_runtime.files import flush
from edl_runtime.public_settings import without_passwords
from recordio.description import DataDescription, description_from_json

_OPTION = "--data"
_FIRST = "the first file of the stream"

_SAMPLE_RECORDS, _SAMPLE_BYTES = 1024, 1 << 20
"""Of the stream's first records, which are kept: their file may be gone when a worker starts."""

_FILES_AT_ONCE = 1000
"""So many are opened before their records are passed on: the first of many should not wait."""


@dataclass(frozen=True, slots=True)
class _Entry:
    uri: str
    records: int
    checksum: int
    version: str


def _describe(file: DataFile) -> _Entry:
    return _Entry(file.uri, file.index.records, file.index.checksum, file.version)


class SplitLog:
    """The files of a stream in the order of their discovery, on the disk.

    Args:
        path: one line of JSON for each file, in order; the first line describes their fields and
            has the first records.

    Attributes:
        path: as above.
        uris: of all files, and their numbers.
        names: of all files without passwords, by their numbers.
        versions: of all files as they were discovered, by their numbers.
        description: of their columns or features; None: not known.
        sample: the first records.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.uris: dict[str, int] = {}
        self.names: list[str] = []
        self.versions: list[str] = []
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
            self.description = description_from_json(about)
            self._add(_Entry(**json.loads(line)) for line in lines)

    def _add(self, entries: Iterable[_Entry]) -> None:
        for entry in entries:
            self.uris[entry.uri] = len(self.uris)
            self.names.append(without_passwords(entry.uri))
            self.versions.append(entry.version)

    def __len__(self) -> int:
        return len(self.uris)

    def _read_lines(self) -> list[bytes]:
        with self.path.open("rb") as file:
            return file.read(self._nbytes).splitlines()

    def append(
        self,
        entries: Sequence[_Entry],
        description: DataDescription | None,
        sample: Sequence[bytes] = (),
    ) -> None:
        """Add files; when this returns, they are on the disk, and if it fails, none is added.

        Args:
            description: of the fields of all files; a log that has files keeps its own.
            sample: the first records; likewise.
        """
        lines = [json.dumps(asdict(entry)) for entry in entries]
        if not self._nbytes:
            kept = [base64.b64encode(record).decode() for record in sample]
            about = description.as_json() if description else {}
            lines.insert(0, json.dumps({**about, "sample": kept}))
        content = "".join(f"{line}\n" for line in lines).encode()
        with self.path.open("ab") as file:
            file.truncate(self._nbytes)  # of what an attempt on a full disk has left
            file.write(content)
        flush(self.path)
        if not self._nbytes:
            flush(self.path.parent)
            self.description = description
            self.sample = tuple(sample)
        self._nbytes += len(content)
        self._add(entries)

    def read(self, first: int) -> list[_Entry]:
        """Return the files from a number on."""
        if not self._nbytes:
            return []
        return [_Entry(**json.loads(line)) for line in self._read_lines()[1 + first :]]


class StreamFiles:
    """Discovers the files of a stream, and finds the records of its tasks in them.

    Args:
        patterns: paths of folders, globs or URIs.
        format: of the files; empty: by name and content.
        log: what the job has discovered so far.
    """

    def __init__(self, patterns: Sequence[str], format: str, log: SplitLog) -> None:
        self._patterns = tuple(patterns)
        self._format = format
        self._log = log
        self._files: dict[int, DataFile] = {}
        self._lock = threading.Lock()
        self._next_look = 0

    @property
    def names(self) -> Sequence[str]:
        """The names of all files that were discovered, by their numbers, without passwords."""
        return self._log.names

    @property
    def sample(self) -> tuple[bytes, ...]:
        """The first records of the stream, on which a worker tries the model."""
        return self._log.sample

    def compare(self, validation: DataSet | None) -> ComparedData:
        """Return the fields that all files have: those of the first file, which must be there.

        Raises:
            EdlError: DATA_NOT_FOUND: there is no file; SHAPE_MISMATCH: the validation data differs.
        """
        notes: list[LogEvent] = []
        if not len(self._log):
            _, notes = self.discover()
        if not len(self._log):
            raise EdlError(
                ErrorCode.DATA_NOT_FOUND,
                "the stream has no file yet",
                where=f"{_OPTION} {', '.join(map(without_passwords, self._patterns))}",
                remedy="A stream begins with a file: it says which fields the records have.",
            )
        known = self._log.description
        if known is not None and validation is not None:
            for file in validation.files:
                notes += compare_file(known, file, _FIRST)
        return ComparedData(known, tuple(notes))

    def reopen(self, first: int, known: int) -> tuple[Split, ...]:
        """Open the files that were discovered earlier, from a number on.

        Args:
            first: the first one that is needed.
            known: how many the job knows.

        Raises:
            EdlError: DATA_NOT_FOUND or DATA_DAMAGED: one is not there any more, or has changed;
                CHECKPOINT_DAMAGED: their order is lost.
        """
        if len(self._log) < known:
            raise EdlError(
                ErrorCode.CHECKPOINT_DAMAGED,
                f"the order of the stream's files is lost: {len(self._log)} of {known} are known",
                where=str(self._log.path),
                remedy="Continue the job with the directory that it had; or begin a new job, with "
                "--init-from and files that have not trained.",
            )
        entries = self._log.read(first)
        for begin in range(0, len(entries), _FILES_AT_ONCE):
            some = entries[begin : begin + _FILES_AT_ONCE]
            if gone := _find_missing([entry.uri for entry in some]):
                raise _change_error(ErrorCode.DATA_NOT_FOUND, gone, "is not there any more")
            files = open_files([entry.uri for entry in some], self._format, _OPTION)
            for number, (entry, file) in enumerate(zip(some, files, strict=True), first + begin):
                if file.index.checksum != entry.checksum:
                    what = "has changed since the job discovered it"
                    raise _change_error(ErrorCode.DATA_DAMAGED, entry.uri, what)
                self._add(number, file)
        return tuple(
            Split(number, self.names[number], entry.records)
            for number, entry in enumerate(entries, first)
        )

    def discover(self) -> tuple[tuple[Split, ...], list[LogEvent]]:
        """Return files that are new, at most a thousand, and what users should know of them.

        Raises:
            EdlError: DATA_UNREADABLE, if the place cannot be listed now, or a file not be read;
                DATA_DAMAGED; SHAPE_MISMATCH, if a file lacks fields that the first one has.
        """
        try:
            found = list_files(self._patterns, _OPTION)
        except EdlError as error:
            if error.code is not ErrorCode.DATA_NOT_FOUND:
                raise
            return (), []  # all files may have trained and be removed
        notes = self._note_overwritten()
        uris = [uri for uri in found if uri not in self._log.uris][:_FILES_AT_ONCE]
        if not uris:
            return (), notes
        files, first = open_files(uris, self._format, _OPTION), len(self._log)
        known = self._log.description if first else files[0].description
        if known is not None:
            notes += [note for file in files for note in compare_file(known, file, _FIRST)]
        sample = () if first else _read_sample(files)
        self._log.append([_describe(file) for file in files], known, sample)
        for number, file in enumerate(files, first):
            self._add(number, file)
        splits = (
            Split(number, self.names[number], file.index.records)
            for number, file in enumerate(files, first)
        )
        return tuple(splits), notes

    def _note_overwritten(self) -> list[LogEvent]:
        """Return an event for each known file that was written again, of the next ones in turn.

        Only files of this machine are looked at: a store would need a request for each.
        """
        found = []
        first, count = self._next_look, len(self._log)
        for number in range(first, min(first + _FILES_AT_ONCE, count)):
            name, version = self._log.names[number], self._log.versions[number]
            try:
                facts = os.stat(name)
            except OSError:  # a removed file, or one in a store
                continue
            found_version = f"{facts.st_size}-{facts.st_mtime_ns}-"
            if not f"{version}-".startswith(found_version):
                self._log.versions[number] = found_version
                line = f"{name} was written again. Its name is known, so it is not read again."
                found.append(LogEvent("FileOverwritten", line, Severity.WARNING))
        self._next_look = first + _FILES_AT_ONCE if first + _FILES_AT_ONCE < count else 0
        return found

    def _add(self, number: int, file: DataFile) -> None:
        with self._lock:
            self._files[number] = file

    def forget(self, before: int) -> None:
        """Forget the files with smaller numbers: their records have trained."""
        with self._lock:
            for number in [number for number in self._files if number < before]:
                del self._files[number]

    def locate(self, records: Sequence[Range]) -> list[task_pb2.RecordRange]:
        """Return ranges of records as a worker needs them."""
        with self._lock:
            files = {part.file: self._files[part.file] for part in records}
        return locate(files, records)


def _read_sample(files: Sequence[DataFile]) -> Sequence[bytes]:
    """Return the first records of the first file that has any."""
    sample: list[bytes] = []
    nbytes = 0
    file = next((file for file in files if file.index.records), None)
    if file is not None:
        source = recordio.open_source(file.uri, format=file.format, version=file.version)
        for record in source.read(0, _SAMPLE_RECORDS, hint=file.index.block(0)):
            nbytes += len(record)
            if sample and nbytes > _SAMPLE_BYTES:
                break
            sample.append(record)
    return sample


def _find_missing(uris: Sequence[str]) -> str:
    """Return a file that is not there; empty if all are."""
    for uri in uris:
        try:
            recordio.expand(uri)
        except recordio.NoSuchData:
            return uri
    return ""


def _change_error(code: ErrorCode.ValueType, uri: str, what: str) -> EdlError:
    name = without_passwords(uri)
    return EdlError(
        code,
        f"the data of the stream has changed: {name} {what}",
        where=name,
        remedy="Records of this file have not trained yet. Put the file back as it was, and resume"
        " the job.",
    )
