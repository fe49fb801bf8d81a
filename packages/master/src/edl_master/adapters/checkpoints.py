"""Checkpoints on disk: ledger and parameters of one moment, whole or not there at all.

Each is a directory of its own, written under a temporary name and renamed when all of it is
on the disk. A damaged one is reported, and the one before it is used.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import secrets
import shutil
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from edl_master.adapters.checkpoint_files import (
    DAMAGE,
    MANIFEST,
    Checkpoint,
    read_checkpoint,
    taken_at,
    write_files,
)
from edl_master.adapters.storage_errors import storage_error
from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.files import flush, read_regular

log = logging.getLogger(__name__)

_LOCK_S = 2.0


class CheckpointStorage(Protocol):
    """The storage of a job's checkpoints: a directory, or a store.

    What is written counts once it is published. Methods that are not described here are those
    of ``LocalCheckpoints``.
    """

    def close(self) -> None: ...

    def names(self) -> list[str]: ...

    def expect(self, label: str) -> None: ...

    def parts(self, label: str, count: int) -> list[Path]: ...

    def write(self, checkpoint: Checkpoint, parts: Sequence[Path] = ()) -> str: ...

    def publish(self, name: str) -> bool: ...

    def newest(self, on_damaged: Callable[[str, str], None]) -> Checkpoint | None: ...

    def newest_at(self) -> float: ...


class LocalCheckpoints:
    """The checkpoints of one job in a directory that it may share with other jobs.

    Args:
        directory: where they are; made when the first is written.
        job: the job's name, part of every checkpoint's name.
        keep: how many of this job's checkpoints stay.
    """

    def __init__(self, directory: Path, job: str, keep: int) -> None:
        self._directory = directory
        self._job = job
        self._ordered: deque[str] = deque()
        self._keep = keep
        self._name = re.compile(rf"{re.escape(job)}-(\d{{8}})")
        self._owner = directory / f".{job}.owner"
        self._held: int | None = None
        self._mark = b""
        self._last = 0

    def prepare(self) -> None:
        """Make the directory this master's, and remove what a crash left half-written.

        Two masters that write checkpoints of one job would mix two trainings. A lock
        keeps the second one out. Where locks do not reach, on some shared file systems, there is
        a number that grows with every master: the earlier one finds it changed when it writes.

        Raises:
            EdlError: JOB_EXISTS when another master has it; OUTPUT_UNWRITABLE or DISK_FULL.
        """
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._hold()
            for path in self._directory.glob(f".{self._job}-*.tmp"):
                shutil.rmtree(path, ignore_errors=True)
            probe = self._draft(f"{self._job}-probe")
            probe.mkdir()
            probe.rmdir()
        except OSError as error:
            raise storage_error(error, self._directory) from error

    def _hold(self) -> None:
        held = os.open(self._owner, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        deadline = time.monotonic() + _LOCK_S
        while True:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                # The processes of a killed master may take a moment to be gone.
                if time.monotonic() < deadline:
                    time.sleep(0.05)
                    continue
                os.close(held)
                raise EdlError(
                    ErrorCode.JOB_EXISTS,
                    f"another master writes checkpoints of {self._job}",
                    where=str(self._directory),
                    remedy="Use another --name or --checkpoint-dir, or stop that job first.",
                ) from None
        self._held = held
        number = int((os.pread(held, 100, 0).split() or [b"0"])[0]) + 1
        self._mark = f"{number} {secrets.token_hex(8)}\n".encode()
        os.ftruncate(held, 0)
        os.pwrite(held, self._mark, 0)
        os.fsync(held)

    def close(self) -> None:
        """Let another master of the job write here."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def clear(self) -> None:
        """Remove all of them: the job has its result."""
        for name in self.names():
            shutil.rmtree(self._directory / name, ignore_errors=True)

    def _check_owner(self) -> None:
        if self._mark and self._owner.read_bytes() != self._mark:
            raise stale(self._job, str(self._owner))

    def _draft(self, name: str) -> Path:
        """Return a path that no other master chooses, even one that takes itself for the newest."""
        return self._directory / f".{name}.{secrets.token_hex(4)}.tmp"

    def names(self) -> list[str]:
        """Return the names of this job's checkpoints, oldest first."""
        if not self._directory.is_dir():
            return []
        return sorted(
            path.name for path in self._directory.iterdir() if self._name.fullmatch(path.name)
        )

    def expect(self, label: str) -> None:
        """Announce a label whose parts other processes write; they may never do so."""
        self._ordered.append(label)

    def parts(self, label: str, count: int) -> list[Path]:
        """Return the parts that were written for a label; those of earlier labels are removed."""
        while self._ordered and (one := self._ordered.popleft()) != label:
            for number in range(count):
                shutil.rmtree(part_path(self._directory, self._job, one, number), True)
        return [part_path(self._directory, self._job, label, number) for number in range(count)]

    def write(self, checkpoint: Checkpoint, parts: Sequence[Path] = ()) -> str:
        """Keep a checkpoint, and drop the oldest ones beyond ``keep``; return its name.

        Args:
            checkpoint: what this process keeps.
            parts: what others have written by ``write_part``, in their order; moved to the whole.

        Raises:
            EdlError: OUTPUT_UNWRITABLE or DISK_FULL; STALE_INCARNATION when another master has
                taken over. The earlier checkpoints are as they were.
        """
        names = self.names()
        # A name is never used twice, even if its checkpoint was removed meanwhile.
        self._last = max(self._last, int(names[-1].rpartition("-")[2]) if names else 0) + 1
        name = f"{self._job}-{self._last:08d}"
        temporary = self._draft(name)
        try:
            self._check_owner()
            temporary.mkdir(parents=True)
            moved = []
            for i, part in enumerate(parts):
                moved.append(f"part-{i}")
                part.rename(temporary / moved[i])
            write_files(temporary, self._job, checkpoint, moved)
            self._check_owner()
            temporary.rename(self._directory / name)
            flush(self._directory)
        except EdlError:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        except OSError as error:
            shutil.rmtree(temporary, ignore_errors=True)
            raise storage_error(error, self._directory / name) from error
        for old in self.names()[: -self._keep]:
            # Renamed first, so that a half-removed one is never mistaken for a damaged one.
            gone = self._draft(old)
            try:
                (self._directory / old).rename(gone)
                shutil.rmtree(gone)
            except OSError as error:
                log.warning("checkpoint %s cannot be removed: %s", old, error)
        return name

    def publish(self, name: str) -> bool:
        """Do nothing: on this machine a checkpoint counts as soon as it is written."""
        return True

    def newest(self, on_damaged: Callable[[str, str], None]) -> Checkpoint | None:
        """Return the newest checkpoint that is whole; None if there is none at all.

        Args:
            on_damaged: called with name and fault of each one that is passed over.

        Raises:
            EdlError: CHECKPOINT_DAMAGED when there are some, and all are damaged.
        """
        names = self.names()
        problem = ""
        for name in reversed(names):
            try:
                return read_checkpoint(self._directory / name, check=True)
            except DAMAGE as error:
                problem = str(error) or repr(error)
                on_damaged(name, problem)
        if not names:
            return None
        raise all_damaged_error(len(names), self._job, str(self._directory), problem)

    def newest_at(self) -> float:
        """Return when the newest one was complete, in seconds since 1970; 0 if there is none."""
        for name in reversed(self.names()):
            with contextlib.suppress(*DAMAGE):
                return taken_at(read_regular(self._directory / name / MANIFEST))
        return 0.0


def all_damaged_error(count: int, job: str, where: str, problem: str) -> EdlError:
    """Return the error that says that every checkpoint is damaged."""
    return EdlError(
        ErrorCode.CHECKPOINT_DAMAGED,
        f"none of the {count} checkpoints of {job} is intact: {problem}",
        where=where,
        remedy="Restore them from a backup, or delete them to train from the beginning.",
    )


def stale(job: str, where: str) -> EdlError:
    """Return the error that says that a later master has taken over the directory."""
    return EdlError(
        ErrorCode.STALE_INCARNATION,
        f"another master of {job} has begun to write checkpoints here; this one is fenced off",
        where=where,
        remedy="Two masters run the same job: stop one of them.",
    )


def part_path(directory: Path, job: str, label: str, number: int) -> Path:
    """Return where the part of a process is until the whole is written."""
    return directory / f".{job}-{label}-part-{number}.tmp"


def write_part(path: Path, job: str, checkpoint: Checkpoint) -> None:
    """Write what another process is to take into its checkpoint.

    Raises:
        EdlError: OUTPUT_UNWRITABLE or DISK_FULL.
    """
    try:
        path.mkdir(parents=True)
        write_files(path, job, checkpoint)
    except OSError as error:
        shutil.rmtree(path, ignore_errors=True)
        raise storage_error(error, path) from error
