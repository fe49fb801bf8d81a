"""Where the result of a job goes, and the joining of predictions; ``exports`` has the models."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from google.protobuf.message import DecodeError

import recordio
from edl_master.adapters import object_stores
from edl_master.adapters.job_directory import flush_directory, replace_file, storage_error
from edl_master.core.effects import Range
from edl_master.core.events import HeldLease
from edl_master.core.tasks import TaskPartition
from edl_proto.errors import EdlError
from edl_proto.trained_model import TRAINED_MODEL
from edl_proto.v1 import error_pb2, model_pb2

RECORDIO = ".recordio"


def check_output(output: str, *, resumed_job: str = "") -> None:
    """Make sure that a result can be put in its place later; makes the directory above it.

    Args:
        output: a path, or the URI of a place in a store.
        resumed_job: a job whose earlier master may have died after its model was written there;
            that model is no obstacle, and is replaced by the one that is written again.

    Raises:
        EdlError: OUTPUT_EXISTS, OUTPUT_UNWRITABLE, or USAGE for a name that stores misread.
    """
    if object_stores.is_store(output):
        object_stores.check_literal(output, "--output")
        if object_stores.exists(output) and not (resumed_job and is_of(resumed_job, output)):
            raise output_exists(output)
        object_stores.check_writable(output)
        return
    path = Path(output)
    if os.path.lexists(path) and not (resumed_job and model_of(path) == resumed_job):
        raise output_exists(output, where=str(path.absolute()))
    probe = path.parent / f".{path.name}.{secrets.token_hex(4)}.probe"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        raise storage_error(error, path) from error


def model_of(path: Path) -> str:
    """The job that wrote the trained model in this directory; empty if there is none."""
    try:
        return model_pb2.TrainedModel.FromString((path / TRAINED_MODEL).read_bytes()).job
    except (OSError, DecodeError):
        return ""


def is_of(job: str, uri: str) -> bool:
    """Whether what is at a place in a store is a trained model of this job, or a part of it."""
    if object_stores.being_written_by(uri) == job:
        return True
    try:
        content = object_stores.read(f"{uri.rstrip('/')}/{TRAINED_MODEL}")
        return model_pb2.TrainedModel.FromString(content).job == job
    except DecodeError:
        return False


class JobOutput(Protocol):
    """What workers write for a job, and the output that is made of it."""

    def part_of(self, lease: HeldLease) -> str:
        """Where the holder of a lease writes. No other holder ever writes there."""

    def completing(self, lease: HeldLease, records: int) -> AbstractContextManager[None]:
        """The holder of a lease says that its part is complete, and the job is asked within.

        Unless that raises, the part is the task's when the context ends; finishing waits for it.
        """

    def settle(self) -> None:
        """Return when the parts of all tasks that the job counts as done by now are in place."""

    def finish(self, dead: int = 0) -> None:
        """Make the output; ``dead`` is how many tasks the job went on without."""

    def clear(self, succeeded: bool) -> None:
        """Forget what nobody needs: the job is over."""


class PredictionOutput:
    """Parts that workers write, one per task, and the output that is made of them.

    Beside the parts lies a note of the output that is being put in its place: should this master
    die before it can say that it is there, the next one knows it for the job's own. Parts and note
    stay until ``clear``.

    Args:
        parts: directory of the parts.
        output: a directory to make, with one file per data file; or, if it ends in
            ``.recordio``, one file of all. A path or a URI.
        uris: of the data files.
        cut: how the data is cut into tasks.
        incarnation: of this master.
    """

    def __init__(
        self, parts: Path, output: str, uris: Sequence[str], cut: TaskPartition, incarnation: str
    ) -> None:
        self._parts = parts
        self._output = output
        self._uris = uris
        self._cut = cut
        self._incarnation = incarnation
        self._completing = threading.Lock()
        self._job = parts.parent.name
        self._note = parts.with_name(f"{parts.name}-joined")

    # --- beginnings ------------------------------------------------------------------------

    def resume(self, is_settled: Callable[[int], bool], dead: int) -> bool:
        """Go on with the parts that an earlier master of this job took; others are removed.

        Args:
            is_settled: whether the task of a number is done or dead.
            dead: how many tasks are dead.

        Returns:
            Whether the part of every task that is done is there. If not, nothing has changed.

        Raises:
            EdlError: OUTPUT_UNWRITABLE.
        """
        if self.is_joined:
            return True  # nobody needs them any more
        settled = [number for number in range(self._cut.count) if is_settled(number)]
        try:
            self._parts.mkdir(parents=True, exist_ok=True)
            with os.scandir(self._parts) as entries:
                # A machine that lost its power may have kept the name of a file, and no content.
                there = {entry.name for entry in entries if entry.stat().st_size}
            kept = there.intersection(map(_name, settled))
            if len(kept) != len(settled) - dead:
                return False
            self._remove_all_but(kept)
        except OSError as error:
            raise storage_error(error, self._parts) from error
        return True

    def prepare(self) -> None:
        """Begin anew: without parts, and without the output, of an earlier master of this job.

        Raises:
            EdlError: OUTPUT_UNWRITABLE or DISK_FULL.
        """
        if self.is_begun:
            self._remove_output()
        try:
            self._note.unlink(missing_ok=True)
            # Not the directory itself: containers of workers that live may have it mounted.
            self._parts.mkdir(parents=True, exist_ok=True)
            self._remove_all_but(set())
        except OSError as error:
            raise storage_error(error, self._parts) from error

    @property
    def is_joined(self) -> bool:
        """Whether the output is in its place, whole, put there by a master of this job."""
        noted = self._noted()
        return bool(noted) and noted == self._whole()

    @property
    def is_begun(self) -> bool:
        """Whether what is in the output's place, if anything is, is from a master of this job."""
        noted = self._noted()
        return bool(noted) and (noted == _growing(self._output) or noted == self._whole())

    def _noted(self) -> dict[str, Any]:
        try:
            noted = json.loads(self._note.read_bytes())
        except (OSError, ValueError):
            return {}
        return noted if isinstance(noted, dict) else {}

    def _whole(self) -> dict[str, Any] | None:
        """What the note says when the output is complete; None if there is no output."""
        if object_stores.is_store(self._output):
            return _grown(self._output) if object_stores.exists(self._output) else None
        try:
            return _identity(Path(self._output))
        except OSError:
            return None

    def _write_note(self, noted: dict[str, Any]) -> None:
        try:
            replace_file(self._note, json.dumps(noted).encode(), durable=True)
        except OSError as error:
            raise storage_error(error, self._note) from error

    def _remove_output(self) -> None:
        if object_stores.is_store(self._output):
            object_stores.remove(self._output)
            return
        try:
            _remove(Path(self._output))
        except OSError as error:
            raise storage_error(error, self._output) from error

    def clear(self, succeeded: bool) -> None:
        """Forget parts and note, if the output is complete."""
        if succeeded:
            self._note.unlink(missing_ok=True)
            shutil.rmtree(self._parts, ignore_errors=True)

    def _remove_all_but(self, kept: set[str]) -> None:
        for path in self._parts.iterdir():
            if path.name not in kept:
                _remove(path)

    # --- parts -----------------------------------------------------------------------------

    def part_of(self, lease: HeldLease) -> str:
        """Where the holder of a lease writes its part. No other holder ever writes there.

        Tokens alone would not do: after the loss of a master they go on from its snapshot.
        """
        name = f"{lease.task.number:010d}-{self._incarnation}-{lease.token}{RECORDIO}"
        return str(self._parts / name)

    @contextmanager
    def completing(self, lease: HeldLease, records: int) -> Iterator[None]:
        """The holder of a lease says that its part is complete, and the job is asked within.

        Unless that raises, the part is the task's when the context ends; joining waits for it.

        Args:
            lease: under which the part was written.
            records: predictions in it; a part of another length is not taken.

        Raises:
            EdlError: OUTPUT_UNWRITABLE.
        """
        number = lease.task.number
        with self._completing:
            yield
            if records == _length(self._cut.range(number)):
                try:
                    os.replace(self.part_of(lease), self._accepted(number))
                except FileNotFoundError:
                    # Said before, and the answer was lost; otherwise it is missed at the end.
                    return
                except OSError as error:
                    raise storage_error(error, self._parts) from error

    def settle(self) -> None:
        """Return when the parts of all tasks that the job counts as done by now are in place.

        Raises:
            EdlError: OUTPUT_UNWRITABLE.
        """
        with self._completing:
            pass
        try:
            flush_directory(self._parts)
        except OSError as error:
            raise storage_error(error, self._parts) from error

    # --- the output ------------------------------------------------------------------------

    def finish(self, dead: int = 0) -> None:
        """Join the parts in the order of the data, unless an earlier master has done that.

        The output appears at once and whole.

        Args:
            dead: how many tasks the job went on without; exactly so many parts are missing.

        Raises:
            EdlError: OUTPUT_UNWRITABLE, DISK_FULL, or INTERNAL when a part is missing or does
                not hold one prediction for each of its records.
        """
        with self._completing:
            if self.is_joined:
                return
            tasks = list(self._tasks(dead))
        if object_stores.is_store(self._output):
            self._join_for_store(tasks)
        else:
            self._join_here(tasks, Path(self._output))

    def _join_here(self, tasks: list[tuple[int, Range]], output: Path) -> None:
        # One name for all masters of the job: what a killed one left is made anew.
        temporary = output.with_name(f".{output.name}.edl-{self._job}.tmp")
        try:
            _remove(temporary)
            self._concatenated(tasks, temporary)
            if os.path.lexists(output):
                check_output(self._output)
            self._write_note(_identity(temporary))
            temporary.rename(output)
            flush_directory(output.parent)
        except OSError as error:
            raise storage_error(error, output) from error
        finally:
            with suppress(OSError):
                _remove(temporary)

    def _join_for_store(self, tasks: list[tuple[int, Range]]) -> None:
        joined = self._parts / "joined"
        try:
            _remove(joined)
            self._concatenated(tasks, joined)
        except OSError as error:
            raise storage_error(error, joined) from error
        if object_stores.exists(self._output):
            if not self.is_begun:
                raise output_exists(self._output)
            object_stores.remove(self._output)
        # Objects appear one by one: whatever is there after this is the job's own.
        self._write_note(_growing(self._output))
        object_stores.put(joined, self._output, self._job)
        self._write_note(_grown(self._output))

    def _concatenated(self, tasks: list[tuple[int, Range]], to: Path) -> None:
        if self._output.endswith(RECORDIO):
            self._concatenate(tasks, to)
        else:
            self._join_by_file(tasks, to)

    def _tasks(self, dead: int) -> Iterator[tuple[int, Range]]:
        """The tasks that have a part, in the order of the data."""
        missing = 0
        for number in range(self._cut.count):
            if self._accepted(number).exists():
                yield number, self._cut.range(number)
            else:
                missing += 1
        if missing != dead:
            raise _incomplete(f"{missing} are missing, {dead} should be", self._parts)

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
        places = [str(self._accepted(number)) for number, _ in tasks]
        try:
            found = recordio.concatenate(places, str(path))
        except recordio.RecordError as error:
            raise _incomplete(str(error), self._parts) from error
        if found != wanted:
            raise _incomplete(f"{found} predictions for {wanted} records", self._parts)

    def _accepted(self, number: int) -> Path:
        return self._parts / _name(number)


def _name(number: int) -> str:
    """Of the part that was taken for a task."""
    return f"{number:010d}{RECORDIO}"


def _growing(output: str) -> dict[str, Any]:
    """What the note says of an output in a store that is being written."""
    return {"uri": output, "whole": False}


def _grown(output: str) -> dict[str, Any]:
    """The same when it is complete."""
    return {"uri": output, "whole": True}


def _identity(path: Path) -> dict[str, Any]:
    """What stays the same when a file or directory is renamed."""
    found = path.stat(follow_symlinks=False)
    return {"device": found.st_dev, "inode": found.st_ino}


def _remove(path: Path) -> None:
    """Remove a file or a directory, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _length(records: Range) -> int:
    return records.stop - records.start


def output_names(uris: Sequence[str]) -> list[str]:
    """One name in the output for each data file: its own, or numbered where two would be one."""
    names = [uri.rstrip("/").rpartition("/")[2].removesuffix(RECORDIO) + RECORDIO for uri in uris]
    if len(set(names)) == len(names):
        return names
    return [f"{number:05d}-{name}" for number, name in enumerate(names)]


def output_exists(
    output: str,
    *,
    what: str = "",
    where: str = "",
    remedy: str = "Choose another --output, or remove what is there.",
) -> EdlError:
    """The error of a result whose place is taken."""
    return EdlError(
        error_pb2.OUTPUT_EXISTS,
        what or f"the output {output} exists",
        where=where or output,
        remedy=remedy,
    )


def _incomplete(what: str, parts: Path) -> EdlError:
    return EdlError(
        error_pb2.INTERNAL,
        f"the parts of the predictions are not what the tasks made: {what}",
        where=str(parts),
        remedy="Something else has changed these files, or this is an internal error of edl.",
    )
