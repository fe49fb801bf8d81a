"""The part files of a prediction job: one per task, joined in the order of the data."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import recordio
from edl_master.adapters import prediction_columns, prediction_tables
from edl_master.core.effects import Range
from edl_master.core.tasks import TaskPartition
from edl_proto.errors import EdlError, ErrorCode

RECORDIO = "recordio"

FORMATS = (RECORDIO, *prediction_tables.FORMATS)

_BLOCK_RECORDS = 8192
_BLOCK_BYTES = 16 << 20

_Write = Callable[[Sequence[int], Path], int]


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """How predictions are written.

    Attributes:
        name: recordio, csv, parquet or jsonl; also the suffix of the files.
        one_file: whether the output is one file of all predictions.
        keep: features next to the predictions; they come first.
        typed: whether texts of these features that are all numbers become numbers.
    """

    name: str = RECORDIO
    one_file: bool = False
    keep: tuple[str, ...] = ()
    typed: bool = False


AS_PARTS = OutputFormat()
"""In the format of the parts, a file for each data file."""


class PartFiles:
    """The accepted parts of tasks in a directory: RecordIO files of ``tf.Example``.

    Args:
        directory: of the parts.
        uris: of the data files.
        partition: of the data into tasks.
    """

    def __init__(self, directory: Path, uris: Sequence[str], partition: TaskPartition) -> None:
        self.directory = directory
        self._uris = uris
        self._partition = partition

    def path(self, number: int) -> Path:
        """Return where the accepted part of a task is."""
        return self.directory / _name(number)

    def expected_records(self, number: int) -> int:
        """Return the predictions that the part of a task must have."""
        return _length(self._partition.range(number))

    def keep_only(self, numbers: Iterable[int], missing: int) -> bool:
        """Remove all files but the parts of these tasks.

        Returns:
            Whether all but ``missing`` of the parts are there. If not, no file is removed.
        """
        wanted = list(numbers)
        self.directory.mkdir(parents=True, exist_ok=True)
        with os.scandir(self.directory) as entries:
            # A machine that lost its power may have kept the name of a file, and no content.
            there = {entry.name for entry in entries if entry.stat().st_size}
        kept = there.intersection(map(_name, wanted))
        if len(kept) != len(wanted) - missing:
            return False
        for path in self.directory.iterdir():
            if path.name not in kept:
                remove(path)
        return True

    def remove_all(self) -> None:
        """Remove all files, but not the directory: containers of workers may have it mounted."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for path in self.directory.iterdir():
            remove(path)

    def tasks(self, dead: int) -> Iterator[tuple[int, Range]]:
        """Yield the tasks that have a part, in the order of the data.

        Raises:
            EdlError: INTERNAL; other than ``dead`` parts are missing.
        """
        missing = 0
        for number in range(self._partition.count):
            if self.path(number).exists():
                yield number, self._partition.range(number)
            else:
                missing += 1
        if missing != dead:
            raise _incomplete(f"{missing} are missing, not {dead}", self.directory)

    def join(self, tasks: list[tuple[int, Range]], to: Path, form: OutputFormat) -> None:
        """Join the parts of these tasks: into one file, or into a directory of one per data file.

        Raises:
            EdlError: INTERNAL; a part does not hold one prediction for each of its records.
        """
        write = self._writer(tasks, form)
        if form.one_file:
            self._write_file(write, tasks, to)
        else:
            self._write_files(write, tasks, to, form.name)

    def _writer(self, tasks: list[tuple[int, Range]], form: OutputFormat) -> _Write:
        """Return a function that joins the parts into one file and counts the predictions."""
        if form.name == RECORDIO:
            return lambda numbers, path: recordio.concatenate(
                [str(self.path(number)) for number in numbers], str(path)
            )
        # All files of the output get the same columns.
        with self._reading():
            columns = prediction_columns.columns_of(
                self._rows(number for number, _ in tasks), form.keep, typed=form.typed
            )
        return lambda numbers, path: prediction_tables.write(
            form.name, self._rows(numbers), columns, path
        )

    def _rows(self, numbers: Iterable[int]) -> Iterator[prediction_columns.Rows]:
        """Yield the predictions in blocks that fit the memory and are large enough for numpy."""
        records: list[bytes] = []
        size = 0
        for number in numbers:
            part = recordio.open_source(str(self.path(number)), format=RECORDIO)
            for record in part.read(0, part.count()):
                records.append(record)
                size += len(record)
                if len(records) == _BLOCK_RECORDS or size >= _BLOCK_BYTES:
                    yield prediction_columns.Rows(records)
                    records, size = [], 0
        if records:
            yield prediction_columns.Rows(records)

    def _write_files(
        self, write: _Write, tasks: list[tuple[int, Range]], directory: Path, suffix: str
    ) -> None:
        by_file: dict[int, list[tuple[int, Range]]] = {}
        for task in tasks:
            by_file.setdefault(task[1].file, []).append(task)
        directory.mkdir(parents=True)
        for file, name in enumerate(output_names(self._uris, suffix)):
            self._write_file(write, by_file.get(file, []), directory / name)

    def _write_file(self, write: _Write, tasks: list[tuple[int, Range]], path: Path) -> None:
        wanted = sum(_length(records) for _, records in tasks)
        with self._reading():
            found = write([number for number, _ in tasks], path)
        if found != wanted:
            raise _incomplete(
                f"they contain {found} predictions for {wanted} records", self.directory
            )

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except recordio.RecordError as error:
            raise _incomplete(str(error), self.directory) from error


def _name(number: int) -> str:
    """Return the file name of a part that was accepted for a task."""
    return f"{number:010d}.{RECORDIO}"


def _length(records: Range) -> int:
    return records.stop - records.start


def remove(path: Path) -> None:
    """Remove a file or a directory, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def output_names(uris: Sequence[str], suffix: str) -> list[str]:
    """Return a name in the output for each data file: its own, or numbered if not unique."""
    ends = f".{suffix}"
    names = [uri.rstrip("/").rpartition("/")[2].removesuffix(ends) + ends for uri in uris]
    if len(set(names)) == len(names):
        return names
    return [f"{number:05d}-{name}" for number, name in enumerate(names)]


def _incomplete(what: str, parts: Path) -> EdlError:
    return EdlError(
        ErrorCode.INTERNAL,
        f"the parts of the predictions are not those that the tasks wrote: {what}",
        where=str(parts),
        remedy="Another program has changed these files, or this is an internal error of edl.",
    )
