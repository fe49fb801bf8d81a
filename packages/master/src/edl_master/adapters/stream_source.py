"""The data of a stream: files that keep arriving in a folder, or records in topics of a broker.

A job numbers the splits in the order in which it discovers them, and writes that order down before
it reads any record: so every later master of the job finds the same records at the same position,
and no split is read twice. What a split contains must not change, and it must be there until its
records have trained.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import recordio
from edl_master.adapters.data import DataFile, DataSet, locate
from edl_master.adapters.data_comparison import ComparedData, compare_file
from edl_master.adapters.folder_listing import FolderListing
from edl_master.adapters.split_log import SplitEntry, SplitLog
from edl_master.adapters.topic_listing import TopicListing
from edl_master.core.effects import LogEvent, Range, Severity
from edl_master.core.windows import Split
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import task_pb2
from edl_runtime.public_settings import without_passwords
from recordio.description import DataDescription
from recordio.kafka.addresses import find_fault, is_kafka

_OPTION = "--data"

_SAMPLE_RECORDS, _SAMPLE_BYTES = 1024, 1 << 20
"""Of the stream's first records, which are kept: their file may be gone when a worker starts."""

_SPLITS_AT_ONCE = 1000
"""So many are opened before their records are passed on: the first of many should not wait."""

_COMPACTED_BYTES = 4 << 20
"""The log is made smaller from this size on, if its listing needs no names."""


class SplitListing(Protocol):
    """Finds what there is to read, and knows what of it was found before."""

    def add(self, entries: Iterable[SplitEntry]) -> None:
        """Take splits as known: they are in the log."""

    def find(self, most: int) -> tuple[list[str], list[LogEvent]]:
        """Return the URIs of new splits, at most so many, and what users should know."""

    def open(self, uris: Sequence[str]) -> list[DataFile]:
        """Index new splits."""

    def open_again(self, entries: Sequence[SplitEntry]) -> list[DataFile]:
        """Return the indexes of splits that an earlier master has discovered."""

    def describe(self, file: DataFile) -> SplitEntry:
        """Return what the log keeps of a split."""

    def positions(self) -> Mapping[str, int | str] | None:
        """Return what is to be known of all splits ever discovered; None: all their names."""

    @property
    def first(self) -> str:
        """The origin of the fields that all records have, for messages."""


def open_stream(
    patterns: Sequence[str],
    format: str,
    log: SplitLog,
    *,
    allow_gaps: bool = False,
    allow_dead_letters: bool = False,
) -> StreamSource:
    """Open the stream of ``--data``.

    Args:
        patterns: paths of folders, globs or URIs of files; or URIs of topics.
        format: of files; empty: by name and content.
        log: what the job has discovered so far.
        allow_gaps: whether records of topics that are lost are left out.
        allow_dead_letters: whether records of topics that have other fields are left out.

    Raises:
        EdlError: USAGE: topics and files are mixed, or a URI is wrong.
    """
    if not any(map(is_kafka, patterns)):
        return StreamSource(patterns, log, FolderListing(patterns, format, _OPTION))
    if fault := find_fault(patterns, are_stream=True):
        raise EdlError(ErrorCode.USAGE, fault[0], where=_OPTION, remedy=fault[1])
    listing = TopicListing(patterns, _OPTION, allow_gaps=allow_gaps, positions=log.positions)
    return StreamSource(patterns, log, listing, allow_others=allow_dead_letters)


class StreamSource:
    """Discovers the splits of a stream, and finds the records of its tasks in them.

    Args:
        patterns: as of ``--data``, for messages.
        log: what the job has discovered so far.
        listing: finds new splits.
        allow_others: whether splits with other fields are reported, instead of an error: the tasks
            that cannot use them will say so.
    """

    def __init__(
        self,
        patterns: Sequence[str],
        log: SplitLog,
        listing: SplitListing,
        *,
        allow_others: bool = False,
    ) -> None:
        self._patterns = tuple(patterns)
        self._log = log
        self._listing = listing
        self._allow_others = allow_others
        self._told: set[str] = set()
        self._splits: dict[int, DataFile] = {}
        self._lock = threading.Lock()
        listing.add(log.read(0))

    @property
    def names(self) -> Sequence[str]:
        """The names of all splits that were discovered, by their numbers, without passwords."""
        return self._log.names

    @property
    def sample(self) -> tuple[bytes, ...]:
        """The first records of the stream, on which a worker tries the model."""
        return self._log.sample

    def compare(self, validation: DataSet | None) -> ComparedData:
        """Return the fields that all records have: those of the first split, which must be there.

        Raises:
            EdlError: DATA_NOT_FOUND: there is none; SHAPE_MISMATCH: the validation data differs.
        """
        notes: list[LogEvent] = []
        if not len(self._log):
            _, notes = self.discover()
        if not len(self._log):
            raise EdlError(
                ErrorCode.DATA_NOT_FOUND,
                "the stream has no records yet",
                where=f"{_OPTION} {', '.join(map(without_passwords, self._patterns))}",
                remedy="A stream begins with a file or a record: it says which fields all have.",
            )
        known = self._log.description
        if known is not None and validation is not None:
            for file in validation.files:
                notes += compare_file(known, file, self._listing.first)
        return ComparedData(known, tuple(notes))

    def reopen(self, first: int, known: int) -> tuple[Split, ...]:
        """Open the splits that were discovered earlier, from a number on.

        Args:
            first: the first one that is needed.
            known: how many the job knows.

        Raises:
            EdlError: DATA_NOT_FOUND or DATA_DAMAGED: one is not there any more, or has changed;
                CHECKPOINT_DAMAGED: their order is lost.
        """
        if len(self._log) < known or first < self._log.first:
            raise EdlError(
                ErrorCode.CHECKPOINT_DAMAGED,
                f"the order of the stream's data is lost: {len(self._log)} of {known} splits are "
                "known",
                where=str(self._log.path),
                remedy="Continue the job with the directory that it had; or begin a new job, with "
                "--init-from and data that has not trained.",
            )
        entries = self._log.read(first)
        for begin in range(0, len(entries), _SPLITS_AT_ONCE):
            files = self._listing.open_again(entries[begin : begin + _SPLITS_AT_ONCE])
            for number, file in enumerate(files, first + begin):
                self._add(number, file)
        return tuple(
            Split(number, self.names[number], entry.records)
            for number, entry in enumerate(entries, first)
        )

    def discover(self) -> tuple[tuple[Split, ...], list[LogEvent]]:
        """Return splits that are new, at most a thousand, and what users should know of them.

        Raises:
            EdlError: DATA_UNREADABLE, if the place cannot be listed now, or a split not be read;
                DATA_NOT_FOUND, if records were lost before they were discovered; DATA_DAMAGED;
                SHAPE_MISMATCH, if a split lacks fields that the first one has.
        """
        uris, notes = self._listing.find(_SPLITS_AT_ONCE)
        if not uris:
            return (), notes
        files, first = self._listing.open(uris), len(self._log)
        descriptions = (file.description for file in files if file.description is not None)
        known = self._log.description if first else next(descriptions, None)
        if not first and known is None and not any(file.index.records for file in files):
            # The log begins with a record: aborted transactions say nothing about those to come.
            self._listing.add(map(self._listing.describe, files))
            return (), notes
        if known is not None:
            notes += [note for file in files for note in self._compare(known, file)]
        sample = () if first else _read_sample(files)
        entries = [self._listing.describe(file) for file in files]
        self._log.append(entries, known, sample)
        self._listing.add(entries)
        for number, file in enumerate(files, first):
            self._add(number, file)
        splits = (
            Split(number, self.names[number], file.index.records)
            for number, file in enumerate(files, first)
        )
        return tuple(splits), notes

    def _compare(self, known: DataDescription, file: DataFile) -> list[LogEvent]:
        """Return in what a split differs from the first one, as far as that is not yet told."""
        try:
            notes = compare_file(known, file, self._listing.first)
        except EdlError as error:
            if not self._allow_others:
                raise
            notes = [LogEvent("DataDiffers", f"{error.what}.", Severity.WARNING)]
        new = [note for note in notes if note.message.partition(": ")[2] not in self._told]
        self._told.update(note.message.partition(": ")[2] for note in new)
        return new

    def _add(self, number: int, file: DataFile) -> None:
        with self._lock:
            self._splits[number] = file

    def forget(self, before: int) -> None:
        """Forget the splits with smaller numbers: their records have trained."""
        with self._lock:
            for number in [number for number in self._splits if number < before]:
                del self._splits[number]

    def compact(self, before: int) -> None:
        """Make the log smaller by what no later master needs: a snapshot has these splits.

        Not to be called while ``discover`` runs.

        Args:
            before: the number of the first split that the snapshot needs.
        """
        positions = self._listing.positions()
        if positions is None or self._log.nbytes < _COMPACTED_BYTES:
            return
        if before - self._log.first > len(self._log) - before:  # at least half of it goes
            self._log.compact(before, positions)

    def locate(self, records: Sequence[Range]) -> list[task_pb2.RecordRange]:
        """Return ranges of records as a worker needs them."""
        with self._lock:
            splits = {part.file: self._splits[part.file] for part in records}
        return locate(splits, records)


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
