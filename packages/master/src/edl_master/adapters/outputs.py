"""Where the result of a job goes, and the joining of predictions."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from google.protobuf.message import DecodeError

import recordio
from edl_master.adapters import stores
from edl_master.adapters.files import flush_directory, storage_error
from edl_master.core.effects import Range
from edl_master.core.events import HeldLease
from edl_master.core.tasks import Cut
from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2, model_pb2

RECORDIO = ".recordio"

TRAINED_MODEL = "trained_model.pb"


def check_output(output: str, *, resumed_job: str = "") -> None:
    """Make sure that a result can be put in its place later; makes the directory above it.

    Args:
        output: a path, or the URI of a place in a store.
        resumed_job: a job whose earlier master may have died after its model was written there;
            that model is no obstacle, and the worker that exports again knows it.

    Raises:
        EdlError: OUTPUT_EXISTS or OUTPUT_UNWRITABLE.
    """
    if stores.is_store(output):
        if stores.exists(output):
            raise _exists(output, output)
        stores.check_writable(output)
        return
    path = Path(output)
    if os.path.lexists(path) and not (resumed_job and _model_of(path) == resumed_job):
        raise _exists(output, str(path.absolute()))
    probe = path.parent / f".{path.name}.{os.getpid()}.probe"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        raise storage_error(error, path) from error


def _model_of(path: Path) -> str:
    """The job that wrote the trained model in this directory; empty if there is none."""
    try:
        return model_pb2.TrainedModel.FromString((path / TRAINED_MODEL).read_bytes()).job
    except (OSError, DecodeError):
        return ""


class Predictions:
    """Parts that workers write, one per task, and the output that is made of them.

    Args:
        parts: directory of the parts.
        output: a directory to make, with one file per data file; or, if it ends in
            ``.recordio``, one file of all. A path or a URI.
        uris: of the data files.
        cut: how the data is cut into tasks.
    """

    def __init__(self, parts: Path, output: str, uris: Sequence[str], cut: Cut) -> None:
        self._parts = parts
        self._output = output
        self._uris = uris
        self._cut = cut
        self._completing = threading.Lock()
        self._joined = parts.with_name(f"{parts.name}-joined")

    def take_over(self) -> None:
        """Remove the output if an earlier master of this job put it there and then died.

        It died before it could say so, and the job makes its predictions again.

        Raises:
            EdlError: OUTPUT_UNWRITABLE.
        """
        if not self._joined.exists():
            return
        output = Path(self._output)
        try:
            if output.is_dir():
                shutil.rmtree(output)
            else:
                output.unlink(missing_ok=True)
            self._joined.unlink()
        except OSError as error:
            raise storage_error(error, output) from error

    def prepare(self) -> None:
        """Make the directory of the parts, without those of an earlier master.

        Raises:
            EdlError: OUTPUT_UNWRITABLE or DISK_FULL.
        """
        try:
            shutil.rmtree(self._parts, ignore_errors=True)
            self._parts.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error(error, self._parts) from error

    def part_of(self, lease: HeldLease) -> str:
        """Where the holder of a lease writes its part. No other holder ever writes there."""
        return str(self._parts / f"{lease.task.number:010d}-{lease.token}{RECORDIO}")

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

    def join(self, dead: int = 0) -> int:
        """Join the parts in the order of the data; return the number of predictions.

        The output appears at once and whole.

        Args:
            dead: how many tasks the job went on without; exactly so many parts are missing.

        Raises:
            EdlError: OUTPUT_UNWRITABLE, DISK_FULL, or INTERNAL when a part is missing or does
                not hold one prediction for each of its records.
        """
        with self._completing:
            tasks = list(self._tasks(dead))
        if stores.is_store(self._output):
            total = self._join_for_store(tasks)
        else:
            total = self._join_here(tasks, Path(self._output))
        shutil.rmtree(self._parts, ignore_errors=True)
        return total

    def _join_here(self, tasks: list[tuple[int, Range]], output: Path) -> int:
        temporary = output.with_name(f".{output.name}.{os.getpid()}.tmp")
        try:
            total = self._concatenated(tasks, temporary)
            if os.path.lexists(output):
                check_output(self._output)
            self._joined.touch()
            temporary.rename(output)
            flush_directory(output.parent)
        except OSError as error:
            raise storage_error(error, output) from error
        finally:
            if temporary.is_dir():
                shutil.rmtree(temporary, ignore_errors=True)
            else:
                temporary.unlink(missing_ok=True)
        return total

    def _join_for_store(self, tasks: list[tuple[int, Range]]) -> int:
        joined = self._parts / "joined"
        try:
            total = self._concatenated(tasks, joined)
        except OSError as error:
            raise storage_error(error, joined) from error
        if stores.exists(self._output):
            raise _exists(self._output, self._output)
        stores.put(joined, self._output)
        return total

    def _concatenated(self, tasks: list[tuple[int, Range]], to: Path) -> int:
        if self._output.endswith(RECORDIO):
            return self._concatenate(tasks, to)
        return self._join_by_file(tasks, to)

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

    def _join_by_file(self, tasks: list[tuple[int, Range]], directory: Path) -> int:
        by_file: dict[int, list[tuple[int, Range]]] = {}
        for task in tasks:
            by_file.setdefault(task[1].file, []).append(task)
        directory.mkdir(parents=True)
        names = output_names(self._uris)
        return sum(
            self._concatenate(by_file.get(file, []), directory / name)
            for file, name in enumerate(names)
        )

    def _concatenate(self, tasks: list[tuple[int, Range]], path: Path) -> int:
        wanted = sum(_length(records) for _, records in tasks)
        places = [str(self._accepted(number)) for number, _ in tasks]
        try:
            found = recordio.concatenate(places, str(path))
        except recordio.RecordError as error:
            raise _incomplete(str(error), self._parts) from error
        if found != wanted:
            raise _incomplete(f"{found} predictions for {wanted} records", self._parts)
        return found

    def _accepted(self, number: int) -> Path:
        return self._parts / f"{number:010d}{RECORDIO}"


def _length(records: Range) -> int:
    return records.stop - records.start


def output_names(uris: Sequence[str]) -> list[str]:
    """One name in the output for each data file: its own, or numbered where two would be one."""
    names = [uri.rstrip("/").rpartition("/")[2].removesuffix(RECORDIO) + RECORDIO for uri in uris]
    if len(set(names)) == len(names):
        return names
    return [f"{number:05d}-{name}" for number, name in enumerate(names)]


def _exists(output: str, where: str) -> EdlError:
    return EdlError(
        error_pb2.OUTPUT_EXISTS,
        f"the output {output} exists",
        where=where,
        remedy="Choose another --output, or remove what is there.",
    )


def _incomplete(what: str, parts: Path) -> EdlError:
    return EdlError(
        error_pb2.INTERNAL,
        f"the parts of the predictions are not what the tasks made: {what}",
        where=str(parts),
        remedy="Something else has changed these files, or this is a defect of edl.",
    )
