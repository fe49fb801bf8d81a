"""The part files of a prediction job: one per task, joined in the order of the data."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import recordio
from edl_master.core.effects import Range
from edl_master.core.tasks import TaskPartition
from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2

RECORDIO = ".recordio"


class PartFiles:
    """The accepted parts of tasks in a directory.

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
        """Where the accepted part of a task is."""
        return self.directory / _name(number)

    def expected_records(self, number: int) -> int:
        """Predictions that the part of a task must have."""
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
        """The tasks that have a part, in the order of the data.

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
            raise _incomplete(f"{missing} are missing, {dead} should be", self.directory)

    def join(self, tasks: list[tuple[int, Range]], to: Path, *, one_file: bool) -> None:
        """Join the parts of these tasks: into one file, or into a directory of one per data file.

        Raises:
            EdlError: INTERNAL; a part does not hold one prediction for each of its records.
        """
        if one_file:
            self._concatenate(tasks, to)
        else:
            self._join_by_file(tasks, to)

    def _join_by_file(self, tasks: list[tuple[int, Range]], directory: Path) -> None:
        by_file: dict[int, list[tuple[int, Range]]] = {}
        for task in tasks:
            by_file.setdefault(task[1].file, []).append(task)
        directory.mkdir(parents=True)
        names = output_names(self._uris)
        for file, name in enumerate(names):
            self._concatenate(by_file.get(file, []), directory / name)

    def _concatenate(self, tasks: list[tuple[int, Range]], path: Path) -> None:
        wanted = sum(_length(records) for _, records in tasks)
        places = [str(self.path(number)) for number, _ in tasks]
        try:
            found = recordio.concatenate(places, str(path))
        except recordio.RecordError as error:
            raise _incomplete(str(error), self.directory) from error
        if found != wanted:
            raise _incomplete(f"{found} predictions for {wanted} records", self.directory)


def _name(number: int) -> str:
    """Of the part that was taken for a task."""
    return f"{number:010d}{RECORDIO}"


def _length(records: Range) -> int:
    return records.stop - records.start


def remove(path: Path) -> None:
    """Remove a file or a directory, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def output_names(uris: Sequence[str]) -> list[str]:
    """One name in the output for each data file: its own, or numbered where two would be one."""
    names = [uri.rstrip("/").rpartition("/")[2].removesuffix(RECORDIO) + RECORDIO for uri in uris]
    if len(set(names)) == len(names):
        return names
    return [f"{number:05d}-{name}" for number, name in enumerate(names)]


def _incomplete(what: str, parts: Path) -> EdlError:
    return EdlError(
        error_pb2.INTERNAL,
        f"the parts of the predictions are not what the tasks made: {what}",
        where=str(parts),
        remedy="Something else has changed these files, or this is an internal error of edl.",
    )
