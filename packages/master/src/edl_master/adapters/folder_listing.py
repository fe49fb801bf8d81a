"""Finds the files that have arrived in folders, or in stores, since the last look."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

import recordio
from edl_master.adapters.data import DataFile, list_files, open_files
from edl_master.adapters.split_log import SplitEntry, describe
from edl_master.core.effects import LogEvent, Severity
from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.public_settings import without_passwords

_FILES_AT_ONCE = 1000


class FolderListing:
    """The files of some folders, globs or URIs; a name is taken once.

    Args:
        patterns: as of ``--data``.
        format: of the files; empty: by name and content.
        option: of the command line, for messages.
    """

    first = "the first file of the stream"

    def __init__(self, patterns: Sequence[str], format: str, option: str) -> None:
        self._patterns, self._format, self._option = tuple(patterns), format, option
        self._known: dict[str, None] = {}
        self._names: list[str] = []
        self._versions: list[str] = []
        self._next_look = 0

    def add(self, entries: Iterable[SplitEntry]) -> None:
        """Take files as known: they are in the log."""
        for entry in entries:
            self._known[entry.uri] = None
            self._names.append(without_passwords(entry.uri))
            self._versions.append(entry.version)

    def find(self, most: int) -> tuple[list[str], list[LogEvent]]:
        """Return new files, at most so many, and what users should know of others.

        Raises:
            EdlError: DATA_UNREADABLE, if the place cannot be listed now.
        """
        try:
            found = list_files(self._patterns, self._option)
        except EdlError as error:
            if error.code is not ErrorCode.DATA_NOT_FOUND:
                raise
            return [], []  # all files may have trained and be removed
        notes = self._note_overwritten()
        return [uri for uri in found if uri not in self._known][:most], notes

    def open(self, uris: Sequence[str]) -> list[DataFile]:
        """Index new files.

        Raises:
            EdlError: DATA_UNREADABLE or DATA_DAMAGED.
        """
        return open_files(uris, self._format, self._option)

    def open_again(self, entries: Sequence[SplitEntry]) -> list[DataFile]:
        """Index files that an earlier master has discovered.

        Raises:
            EdlError: DATA_NOT_FOUND or DATA_DAMAGED: one is not there any more, or has changed.
        """
        for entry in entries:
            try:
                recordio.expand(entry.uri)
            except recordio.NoSuchData:
                what = "is not there any more"
                raise _change_error(ErrorCode.DATA_NOT_FOUND, entry.uri, what) from None
        files = self.open([entry.uri for entry in entries])
        for entry, file in zip(entries, files, strict=True):
            if file.index.checksum != entry.checksum:
                what = "has changed since the job discovered it"
                raise _change_error(ErrorCode.DATA_DAMAGED, entry.uri, what)
        return files

    def describe(self, file: DataFile) -> SplitEntry:
        """Return what the log keeps of a file."""
        return describe(file, with_index=False)

    def positions(self) -> Mapping[str, int | str] | None:
        """Return None: all names are needed."""
        return None

    def _note_overwritten(self) -> list[LogEvent]:
        """Return an event for each known file that was written again, of the next ones in turn.

        Only files of this machine are looked at: a store would need a request for each.
        """
        found = []
        first, count = self._next_look, len(self._names)
        for number in range(first, min(first + _FILES_AT_ONCE, count)):
            name, version = self._names[number], self._versions[number]
            try:
                facts = os.stat(name)
            except OSError:  # a removed file, or one in a store
                continue
            found_version = f"{facts.st_size}-{facts.st_mtime_ns}"
            if not f"{version}-".startswith((f"{found_version}.", f"{found_version}-")):
                self._versions[number] = found_version
                line = f"{name} was written again. Its name is known, so it is not read again."
                found.append(LogEvent("FileOverwritten", line, Severity.WARNING))
        self._next_look = first + _FILES_AT_ONCE if first + _FILES_AT_ONCE < count else 0
        return found


def _change_error(code: ErrorCode.ValueType, uri: str, what: str) -> EdlError:
    name = without_passwords(uri)
    return EdlError(
        code,
        f"the data of the stream has changed: {name} {what}",
        where=name,
        remedy="Records of this file have not trained yet. Put the file back as it was, and resume"
        " the job.",
    )
