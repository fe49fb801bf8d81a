"""Trained models that workers have written, and the one that becomes the job's output.

The holder of the export task writes to a place of its own next to the output. Only the master puts
a model into the output's place, and of masters there is one. So a worker that was given up while it
wrote, and continues, can neither damage nor replace what counts.
"""

from __future__ import annotations

import glob
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from edl_master.adapters import object_stores
from edl_master.adapters.job_output import is_of, model_of, output_exists
from edl_master.adapters.storage_errors import storage_error
from edl_master.core.identifiers import HeldLease
from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.files import flush
from edl_runtime.model.trained_model import TRAINED_MODEL
from recordio.storage.stores import is_uri


class ExportOutput:
    """The models that holders of the export task have written.

    Args:
        output: a directory to make: a path, or the URI of a place in a store.
        job: its name, which a trained model carries.
        incarnation: of this master.
    """

    def __init__(self, output: str, job: str, incarnation: str) -> None:
        self._in_store = is_uri(output)
        if not self._in_store:
            output = str(Path(output.removeprefix("file://")).absolute())
        self._output = output.rstrip("/")
        self._job = job
        self._incarnation = incarnation
        self._accepted = ""
        self._completing = threading.Lock()
        parent, _, name = self._output.rpartition("/")
        # Neither a job's name nor an incarnation has a dot in it.
        self._prefix = f"{parent}/.{name}.edl-{job}."

    def part_of(self, lease: HeldLease) -> str:
        """Return where the holder of a lease writes. No other holder ever writes there.

        Tokens alone would not do: after the loss of a master they continue from its snapshot.
        """
        return f"{self._prefix}{self._incarnation}-{lease.token}.tmp"

    @contextmanager
    def completing(self, lease: HeldLease, records: int) -> Iterator[None]:
        """Accept the model of a lease's holder; the job is asked within the context.

        Unless that raises, it is the one that ``finish`` puts in its place.
        """
        with self._completing:
            yield
            self._accepted = self.part_of(lease)

    def flush(self) -> None:
        """Do nothing: the next master repeats an export that has not become the output."""

    def finish(self, dead: int = 0) -> None:
        """Put the model into the output's place, instead of one of this job's earlier masters.

        A directory appears at once and whole. In a store, where many objects cannot be renamed at
        once, they appear one by one, the description last; a note next to them names the job.

        Raises:
            EdlError: OUTPUT_EXISTS, OUTPUT_UNWRITABLE, or INTERNAL when no whole model is there.
        """
        with self._completing:
            part = self._accepted
        if self._in_store:
            self._finish_in_store(part)
        else:
            self._finish_here(Path(part), Path(self._output))

    def _finish_here(self, part: Path, output: Path) -> None:
        if model_of(part) != self._job:
            raise _not_whole(str(part))
        try:
            if os.path.lexists(output):
                if model_of(output) != self._job:
                    raise _output_appeared(self._output, self._job)
                os.rename(output, f"{self._prefix}{self._incarnation}-before.tmp")
            os.rename(part, output)
            flush(output.parent)
        except OSError as error:
            raise storage_error(error, output) from error

    def _finish_in_store(self, part: str) -> None:
        description = object_stores.read(f"{part}/{TRAINED_MODEL}", persistently=True)
        if not description:
            raise _not_whole(part)
        if object_stores.exists(self._output, persistently=True):
            if not is_of(self._job, self._output):
                raise _output_appeared(self._output, self._job)
            object_stores.remove(self._output)
        object_stores.move(part, self._output, self._job, last=TRAINED_MODEL)

    def clear(self, succeeded: bool) -> None:
        """Remove what holders of the task have left; the job has no working workers any more."""
        if self._in_store:
            with suppress(EdlError):
                object_stores.remove_all(f"{self._prefix}*.tmp")
            return
        for left in glob.glob(f"{glob.escape(self._prefix)}*.tmp"):
            shutil.rmtree(left, ignore_errors=True)


def _output_appeared(output: str, job: str) -> EdlError:
    return output_exists(
        output,
        what=f"{output} appeared while the job ran",
        remedy=f"Move it away, or have edl export {job} --output DIR write the model elsewhere.",
    )


def _not_whole(part: str) -> EdlError:
    return EdlError(
        ErrorCode.INTERNAL,
        "the trained model that a worker has written is missing or incomplete",
        where=part,
        remedy="Another program has changed these files, or this is an internal error of edl.",
    )
