"""The output of a prediction job: parts that workers write, joined when all tasks are done."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from edl_master.adapters import object_stores
from edl_master.adapters.job_output import check_output, output_exists
from edl_master.adapters.part_files import AS_PARTS, RECORDIO, OutputFormat, PartFiles, remove
from edl_master.adapters.storage_errors import storage_error
from edl_master.core.effects import Range
from edl_master.core.identifiers import HeldLease
from edl_master.core.tasks import TaskPartition
from edl_proto.errors import EdlError
from edl_runtime.files import flush, replace_file
from edl_runtime.local import job_directory
from recordio.storage.stores import is_uri


class PredictionOutput:
    """Parts that workers write, one per task, and the output that is made from them.

    A note next to the parts identifies the output that is being put in its place: if this master
    fails before it can report the output, the next master recognizes the output as the job's own.
    Parts and note stay until ``clear``.

    Args:
        parts: directory of the parts.
        job: its name.
        output: the directory or file to make. A path or a URI.
        uris: of the data files.
        partition: of the data into tasks.
        incarnation: of this master.
        form: of the output.
        staging: URI of a place in a store where workers write their parts, if they do not see the
            directory; each part is fetched before it can be taken.
    """

    def __init__(
        self,
        parts: Path,
        job: str,
        output: str,
        uris: Sequence[str],
        partition: TaskPartition,
        incarnation: str,
        form: OutputFormat = AS_PARTS,
        staging: str = "",
    ) -> None:
        self._parts = PartFiles(parts, uris, partition)
        self._output = output
        self._partition = partition
        self._incarnation = incarnation
        self._form = form
        self._staging = staging
        self._completing = threading.Lock()
        self._job = job
        self._note = parts.with_name(f"{parts.name}{job_directory.PARTS_NOTE_SUFFIX}")

    # --- start -----------------------------------------------------------------------------

    def resume(self, is_settled: Callable[[int], bool], dead: int) -> bool:
        """Continue with the parts that an earlier master of this job accepted; remove others.

        Args:
            is_settled: whether the task of a number is done or dead.
            dead: how many tasks are dead.

        Returns:
            Whether the part of every task that is done is there. If not, nothing has changed.

        Raises:
            EdlError: OUTPUT_UNWRITABLE.
        """
        self._clear_staging()
        if self.is_joined:
            return True  # the parts are not needed any more
        settled = [number for number in range(self._partition.count) if is_settled(number)]
        try:
            return self._parts.keep_only(settled, dead)
        except OSError as error:
            raise storage_error(error, self._parts.directory) from error

    def prepare(self) -> None:
        """Start without the parts, and without the output, of an earlier master of this job.

        Raises:
            EdlError: OUTPUT_UNWRITABLE or DISK_FULL.
        """
        self._clear_staging()
        if self.is_begun:
            self._remove_output()
        try:
            self._note.unlink(missing_ok=True)
            self._parts.remove_all()
        except OSError as error:
            raise storage_error(error, self._parts.directory) from error

    @property
    def is_joined(self) -> bool:
        """Whether the output is in its place, whole, put there by a master of this job."""
        noted = self._read_note()
        return bool(noted) and noted == self._complete_note()

    @property
    def is_begun(self) -> bool:
        """Whether a master of this job has begun to put the output in its place."""
        noted = self._read_note()
        return bool(noted) and (
            noted == _store_note(self._output, is_complete=False) or noted == self._complete_note()
        )

    def _read_note(self) -> dict[str, Any]:
        try:
            noted = json.loads(self._note.read_bytes())
        except (OSError, ValueError):
            return {}
        return noted if isinstance(noted, dict) else {}

    def _complete_note(self) -> dict[str, Any] | None:
        """Return the note for a complete output, or None if there is no output."""
        if is_uri(self._output):
            return (
                _store_note(self._output, is_complete=True)
                if object_stores.exists(self._output)
                else None
            )
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
        if is_uri(self._output):
            object_stores.remove(self._output)
            return
        try:
            remove(Path(self._output))
        except OSError as error:
            raise storage_error(error, self._output) from error

    def clear(self, succeeded: bool) -> None:
        """Remove parts and note, if the output is complete; in a store only what was not taken."""
        with suppress(EdlError):
            self._clear_staging()
        if succeeded:
            self._note.unlink(missing_ok=True)
            shutil.rmtree(self._parts.directory, ignore_errors=True)

    def _clear_staging(self) -> None:
        if self._staging:
            object_stores.remove(self._staging)

    # --- parts -----------------------------------------------------------------------------

    def part_of(self, lease: HeldLease) -> str:
        """Return where the holder of a lease writes its part. No other holder ever writes there.

        The token alone is not unique: a restarted master continues from the tokens of a snapshot.
        """
        if self._staging:
            return f"{self._staging}/{self._part_name(lease)}"
        return str(self._local_part(lease))

    def _part_name(self, lease: HeldLease) -> str:
        return f"{lease.task.number:010d}-{self._incarnation}-{lease.token}.{RECORDIO}"

    def _local_part(self, lease: HeldLease) -> Path:
        """Return the path of a holder's part in the directory, before it is accepted."""
        return self._parts.directory / self._part_name(lease)

    @contextmanager
    def completing(self, lease: HeldLease, records: int) -> Iterator[None]:
        """Open the context in which the job decides about a holder that reports a complete part.

        Unless the block raises, the part is the task's when the context ends; joining waits for
        that.

        Args:
            lease: under which the part was written.
            records: predictions in it; a part of another length is not taken.

        Raises:
            EdlError: OUTPUT_UNWRITABLE.
        """
        number = lease.task.number
        if self._staging:
            # Before the job decides: what it has counted as done must not wait for a store.
            object_stores.download(self.part_of(lease), self._local_part(lease))
        with self._completing:
            yield
            if records == self._parts.expected_records(number):
                try:
                    os.replace(self._local_part(lease), self._parts.path(number))
                except FileNotFoundError:
                    # Reported twice, since an answer was lost; or ``finish`` finds it missing.
                    return
                except OSError as error:
                    raise storage_error(error, self._parts.directory) from error

    def flush(self) -> None:
        """Return when the parts of all tasks that the job counts as done are in place.

        Raises:
            EdlError: OUTPUT_UNWRITABLE.
        """
        with self._completing:
            pass
        try:
            flush(self._parts.directory)
        except OSError as error:
            raise storage_error(error, self._parts.directory) from error

    # --- the output ------------------------------------------------------------------------

    def finish(self, dead: int = 0) -> None:
        """Join the parts in the order of the data, unless an earlier master has done that.

        The output appears at once and complete.

        Args:
            dead: number of dead-lettered tasks, which is the number of missing parts.

        Raises:
            EdlError: OUTPUT_UNWRITABLE, DISK_FULL, or INTERNAL when a part is missing or does
                not hold one prediction for each of its records.
        """
        with self._completing:
            if self.is_joined:
                return
            tasks = list(self._parts.tasks(dead))
        if is_uri(self._output):
            self._join_for_store(tasks)
        else:
            self._join_here(tasks, Path(self._output))

    def _join_here(self, tasks: list[tuple[int, Range]], output: Path) -> None:
        # One name for all masters of the job: the next one replaces what a killed one left.
        temporary = output.with_name(f".{output.name}.edl-{self._job}.tmp")
        try:
            remove(temporary)
            self._parts.join(tasks, temporary, self._form)
            if os.path.lexists(output):
                check_output(self._output)
            self._write_note(_identity(temporary))
            temporary.rename(output)
            flush(output.parent)
        except OSError as error:
            raise storage_error(error, output) from error
        finally:
            with suppress(OSError):
                remove(temporary)

    def _join_for_store(self, tasks: list[tuple[int, Range]]) -> None:
        joined = self._parts.directory / "joined"
        try:
            remove(joined)
            self._parts.join(tasks, joined, self._form)
        except OSError as error:
            raise storage_error(error, joined) from error
        if object_stores.exists(self._output, persistently=True):
            if not self.is_begun:
                raise output_exists(self._output, remedy="Move it away.")
            object_stores.remove(self._output)
        # Objects appear one by one: from here on, all objects in that place are the job's own.
        self._write_note(_store_note(self._output, is_complete=False))
        object_stores.put(joined, self._output, self._job)
        self._write_note(_store_note(self._output, is_complete=True))


def _store_note(output: str, *, is_complete: bool) -> dict[str, Any]:
    """Return the note for an output in a store, where objects appear one by one."""
    return {"uri": output, "complete": is_complete}


def _identity(path: Path) -> dict[str, Any]:
    """Return the attributes of a file or directory that survive renaming."""
    found = path.stat(follow_symlinks=False)
    return {"device": found.st_dev, "inode": found.st_ino}
