"""The data of a job: which files, how many records, and where a worker finds a range of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import recordio
from edl_master.adapters.class_numbers import read_class_numbers
from edl_master.adapters.data_fields import describe_fields
from edl_master.core.effects import Range
from edl_master.core.mixing import Mixing, choose_mixing
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import task_pb2
from edl_runtime.public_settings import without_passwords
from recordio.description import DataDescription
from recordio.storage.stored_file import RETRY_S
from recordio.storage.stores import is_uri

_THREADS = 16
"""More than cores: reading headers mostly waits for a disk or a store."""

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of records, indexed.

    Attributes:
        description: of its columns or features; None if they are not known.
    """

    uri: str
    format: str
    columns: tuple[str, ...]
    index: recordio.Index
    version: str
    description: DataDescription | None = None


class DataSet:
    """Files of records in the order in which they were named.

    Attributes:
        files: in their order.
        uris: of the files.
        names: the same names without passwords, for messages.
        counts: records of each.
        checksums: of the content of each.
        records: of all.
    """

    def __init__(self, files: Sequence[DataFile]) -> None:
        self.files = tuple(files)
        self.uris = tuple(file.uri for file in files)
        self.names = tuple(map(without_passwords, self.uris))
        self.counts = tuple(file.index.records for file in files)
        self.checksums = tuple(file.index.checksum for file in files)
        self.records = sum(self.counts)

    @property
    def is_table(self) -> bool:
        """Whether the records are rows of text with named columns."""
        return any(file.columns for file in self.files)

    def describe(self) -> dict[str, Any]:
        """Return what a later master compares its data with, as JSON-able values."""
        return {"names": self.names, "checksums": self.checksums}

    def check_unchanged(self, described: Mapping[str, Any]) -> None:
        """Compare the files with their description by an earlier master of the job.

        Raises:
            EdlError: DATA_NOT_FOUND, if a file is not there any more; DATA_DAMAGED, if there is
                another one, or if one has another content.
        """
        before = tuple(described.get("checksums", ()))
        if not before or before == self.checksums:  # earlier versions of edl described no data
            return
        names = tuple(described.get("names", self.names))
        if gone := [name for name in names if name not in self.names]:
            raise _change_error(ErrorCode.DATA_NOT_FOUND, gone[0], "is not there any more")
        if new := [name for name in self.names if name not in names]:
            raise _change_error(
                ErrorCode.DATA_DAMAGED, new[0], "was not there when the job read it"
            )
        for name, found, was in zip(self.names, self.checksums, before, strict=False):
            if found != was:
                raise _change_error(
                    ErrorCode.DATA_DAMAGED, name, "has changed since the job read it"
                )

    def choose_mixing(self, records_per_task: int) -> Mixing:
        """Choose how finely shuffled tasks of this length are mixed: as reading allows."""
        indexes = [file.index for file in self.files]
        return choose_mixing(
            records_per_task,
            sum(index.nbytes for index in indexes) / self.records,
            self.records / sum(len(index.offsets) for index in indexes),
            in_store=any(map(is_uri, self.uris)),
        )

    def locate(self, records: Sequence[Range]) -> list[task_pb2.RecordRange]:
        """Return ranges of records as a worker needs them: see ``locate``."""
        return locate(self.files, records)


def locate(
    files: Sequence[DataFile] | Mapping[int, DataFile], records: Sequence[Range]
) -> list[task_pb2.RecordRange]:
    """Return ranges of records as a worker needs them: with the blocks to begin at.

    Columns are named once for each file. A part of a task of several parts lies within one
    block, which a worker may keep.

    Args:
        files: by their numbers.
        records: of one task.
    """
    parts = list(records)
    if len(records) > 1:
        parts = [part for one in records for part in _within_blocks(files[one.file].index, one)]
    found, named = [], set[int]()
    for part in parts:
        file = files[part.file]
        index = file.index
        first_record, offset = index.block(part.start)
        found.append(
            task_pb2.RecordRange(
                uri=file.uri,
                format=file.format,
                start=part.start,
                stop=part.stop,
                block_first_record=first_record,
                block_offset=offset,
                columns=() if part.file in named else file.columns,
                version=file.version,
                end_offset=index.end(part.stop),
                block_stop_record=index.next_block(part.stop - 1),
            )
        )
        named.add(part.file)
    return found


def _within_blocks(index: recordio.Index, records: Range) -> Iterator[Range]:
    start = records.start
    while start < records.stop:
        stop = min(index.next_block(start), records.stop)
        yield Range(records.file, start, stop)
        start = stop


def open_data(patterns: Sequence[str], format: str, option: str) -> DataSet:
    """Find the files that patterns name, and count their records by their headers alone.

    Args:
        patterns: paths, globs, directories or URIs.
        format: of the files; empty: by name and content.
        option: of the command line, for messages.

    Raises:
        EdlError: DATA_NOT_FOUND, DATA_EMPTY, DATA_UNREADABLE or DATA_DAMAGED.
    """
    uris = list_files(patterns, option)
    data = DataSet(open_files(uris, format, option))
    if not data.records:
        named = ", ".join(data.uris[:_SHOWN]) + (", ..." if len(uris) > _SHOWN else "")
        raise EdlError(
            ErrorCode.DATA_EMPTY,
            f"the data of {option} has no records",
            where=named,
            remedy="edl data inspect FILE shows what is in a file. The first line of a CSV file "
            "names the columns; records are the lines below it.",
        )
    return data


def list_files(patterns: Sequence[str], option: str) -> list[str]:
    """Return the files that patterns name, as every process of the job can open them.

    Arguments are those of ``open_data``.

    Raises:
        EdlError: DATA_NOT_FOUND or DATA_UNREADABLE.
    """
    wanted = ", ".join(patterns)
    try:
        return [_absolute(uri) for uri in recordio.expand(list(patterns), retry_s=RETRY_S)]
    except recordio.NoSuchData as error:
        raise EdlError(
            ErrorCode.DATA_NOT_FOUND,
            f"no data file matches {wanted}",
            where=f"{option} {wanted}",
            remedy=f"{error}. Name a file, a directory or a pattern; quote patterns.",
        ) from error
    except Exception as error:
        raise _unreadable(wanted, option, error) from error


def open_files(uris: Sequence[str], format: str, option: str) -> list[DataFile]:
    """Index files, several at a time. Arguments and errors are those of ``open_data``."""
    with ThreadPoolExecutor(min(_THREADS, len(uris)), thread_name_prefix="index") as threads:
        return list(threads.map(lambda uri: _open(uri, format, option), uris))


def _open(uri: str, format: str, option: str) -> DataFile:
    try:
        source = recordio.open_source(uri, format=format or None)
        columns, index = tuple(source.columns or ()), source.index()
        fields = describe_fields(source) if index.records else None
        if fields is not None:
            fields = replace(fields, classes=read_class_numbers(uri))
        return DataFile(uri, source.format, columns, index, source.version, fields)
    except recordio.NoHeader as error:
        raise EdlError(
            ErrorCode.DATA_UNREADABLE, error.reason, where=f"{error.uri}:1", remedy=error.remedy
        ) from error
    except recordio.MissingPackage as error:
        raise EdlError(
            ErrorCode.DATA_UNREADABLE,
            str(error),
            where=f"{option} {uri}",
            remedy=f"pip install {error.package}. For containers and pods, put it into the "
            "requirements.txt of the model zoo.",
        ) from error
    except recordio.DamagedFile as error:
        raise EdlError(
            ErrorCode.DATA_DAMAGED,
            str(error),
            where=error.uri,
            remedy="Write the file again, or leave it out of the pattern. "
            "edl data inspect FILE shows what can still be read.",
        ) from error
    # Stores raise errors of many libraries; whichever it is, the file cannot be read.
    except Exception as error:
        raise _unreadable(uri, option, error) from error


def _unreadable(what: str, option: str, error: Exception) -> EdlError:
    return EdlError(
        ErrorCode.DATA_UNREADABLE,
        f"the data cannot be read: {error}",
        where=f"{option} {what}",
        remedy="Check that it exists, that you may read it, and what format it has.",
    )


def _absolute(uri: str) -> str:
    """Make a path absolute, as workers may have another current directory."""
    return uri if "://" in uri else os.path.abspath(uri)


def _change_error(code: ErrorCode.ValueType, name: str, what: str) -> EdlError:
    return EdlError(
        code,
        f"the data of the job has changed: {name} {what}",
        where=name,
        remedy="Make the data what it was and resume the job, or start a new job on the new data.",
    )
