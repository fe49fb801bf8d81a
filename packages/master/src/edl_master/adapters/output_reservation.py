"""The reservation of an output: of two jobs with one output, the second one does not start."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from edl_master.adapters.job_output import output_exists
from edl_master.adapters.storage_errors import storage_error
from edl_runtime.local import output_reservation, supervision


class OutputReservation:
    """Reserves a path for the result of one job, from its first master's start to its end.

    A file next to the output names the job. It is locked while a master of the job runs, and counts
    between two masters as long as the job will be continued automatically. Stores have no locks:
    there nothing is reserved, and the job that comes second fails when it is to write.

    Args:
        output: a path, or the URI of a place in a store.
        job_dir: directory of the job.
    """

    def __init__(self, output: str, job_dir: Path) -> None:
        self._job_dir = job_dir.absolute()
        self._held: int | None = None
        self._path = output_reservation.path_of(output)

    def hold(self) -> None:
        """Reserve the output; its parent directory exists.

        Raises:
            EdlError: OUTPUT_EXISTS if another job has it; OUTPUT_UNWRITABLE or DISK_FULL.
        """
        if self._path is None:
            return
        try:
            while self._held is None:
                self._take(self._path)
        except OSError as error:
            raise storage_error(error, self._path) from error

    def _take(self, path: Path) -> None:
        """Make one attempt; it fails without an error if the file was removed meanwhile."""
        held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._refuse(held, path)
        except OSError:
            pass  # a file system without locks: the name counts all the same
        if not path.exists() or not os.path.samestat(os.fstat(held), path.stat()):
            os.close(held)
            return
        if self._is_of_another(held):
            self._refuse(held, path)
        output_reservation.write(held, self._job_dir)
        self._held = held

    def _is_of_another(self, held: int) -> bool:
        """Return whether the file names another job that will be continued automatically."""
        owner = output_reservation.owner(held)
        return (
            owner is not None
            and owner != self._job_dir
            and supervision.is_wanted(owner)
            and not supervision.is_over(owner)
        )

    def _refuse(self, held: int, path: Path) -> None:
        owner = output_reservation.owner(held)
        os.close(held)
        job = f"job {owner.name}" if owner is not None else "another job"
        raise output_exists(
            str(path),
            what=f"{job} is going to write this output",
            where=str(output_reservation.output_of(path)),
            remedy="Choose another --output, or wait until that job has ended.",
        )

    def close(self) -> None:
        """Stop holding it: this process ends, and the job continues."""
        if self._held is not None:
            os.close(self._held)
            self._held = None
