"""Checkpoints on disk: ledger and parameters of one moment, whole or not there at all.

Each is a directory of its own, written under a temporary name and renamed when all of it is
on the disk. Its manifest holds the checksum of every file, and its own; what does not fit is
damaged, is said so, and the one before it is used.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import secrets
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

# The same interface as zlib; its CRC-32 is about fourteen times as fast.
from zlib_ng import zlib_ng as zlib

from edl_master.adapters.files import flush_directory, storage_error
from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2

log = logging.getLogger(__name__)

Array: TypeAlias = npt.NDArray[Any]

LEDGER, PLANE = "ledger", "plane"
"""Names of a checkpoint's documents; jobs on a trained model have no plane."""

_FORMAT = 1
_MANIFEST = "manifest.json"
_CRC_CHUNK = 16 << 20
_LOCK_S = 2.0


class AsArray(Protocol):
    """What becomes an array when it is written."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array: ...


@runtime_checkable
class InPieces(Protocol):
    """What becomes a flat array piece by piece, once."""

    dtype: np.dtype[Any]
    size: int

    def pieces(self) -> Iterator[Array]: ...


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What was kept.

    Attributes:
        documents: JSON-able values by name.
        arrays: arrays by name; read ones are in memory.
        name: of its directory, for messages.
        taken_at: when it was complete, in seconds since the epoch.
        parts: what other processes kept of the same moment.
        path: where it is; None while it is nowhere.
    """

    documents: Mapping[str, Any]
    arrays: Mapping[str, Array | AsArray | InPieces]
    name: str = ""
    taken_at: float = 0.0
    parts: tuple[Checkpoint, ...] = ()
    path: Path | None = None


class Checkpoints:
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

    def prepare(self) -> None:
        """Make the directory this master's, and remove what a crash left half-written.

        Two masters that write checkpoints of one job would mix two courses of training. A lock
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
            probe = self._directory / f".{self._job}-probe.tmp"
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
                    error_pb2.JOB_EXISTS,
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
            raise EdlError(
                error_pb2.STALE_INCARNATION,
                f"another master of {self._job} has begun to write checkpoints here;"
                " this one is fenced off",
                where=str(self._owner),
                remedy="One of two masters of the same job is too many: stop one of them.",
            )

    def names(self) -> list[str]:
        """Names of this job's checkpoints, oldest first."""
        if not self._directory.is_dir():
            return []
        return sorted(
            path.name for path in self._directory.iterdir() if self._name.fullmatch(path.name)
        )

    def expect(self, label: str) -> None:
        """Other processes write their parts of what has this label; it may never be written."""
        self._ordered.append(label)

    def parts(self, label: str, count: int) -> list[Path]:
        """The parts that were written for a label; those of earlier labels are removed."""
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
        number = int(names[-1].rpartition("-")[2]) + 1 if names else 1
        name = f"{self._job}-{number:08d}"
        temporary = self._directory / f".{name}.tmp"
        try:
            self._check_owner()
            temporary.mkdir(parents=True)
            moved = []
            for i, part in enumerate(parts):
                moved.append(f"part-{i}")
                part.rename(temporary / moved[i])
            _write_files(temporary, self._job, checkpoint, moved)
            self._check_owner()
            temporary.rename(self._directory / name)
            flush_directory(self._directory)
        except EdlError:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        except OSError as error:
            shutil.rmtree(temporary, ignore_errors=True)
            raise storage_error(error, self._directory / name) from error
        for old in self.names()[: -self._keep]:
            # Renamed first, so that a half-removed one is never taken for a damaged one.
            gone = self._directory / f".{old}.tmp"
            try:
                (self._directory / old).rename(gone)
                shutil.rmtree(gone)
            except OSError as error:
                log.warning("checkpoint %s cannot be removed: %s", old, error)
        return name

    def newest(self, on_damaged: Callable[[str, str], None]) -> Checkpoint | None:
        """The newest checkpoint that is whole; None if there is none at all.

        Args:
            on_damaged: told the name of, and what is wrong with, each one passed over.

        Raises:
            EdlError: CHECKPOINT_DAMAGED when there are some, and all are damaged.
        """
        names = self.names()
        problem = ""
        for name in reversed(names):
            try:
                return self._read(name)
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                problem = str(error) or repr(error)
                on_damaged(name, problem)
        if not names:
            return None
        raise EdlError(
            error_pb2.CHECKPOINT_DAMAGED,
            f"none of the {len(names)} checkpoints of {self._job} is whole: {problem}",
            where=str(self._directory),
            remedy="Restore them from a backup, or delete them to train from the beginning.",
        )

    def _read(self, name: str) -> Checkpoint:
        return _read(self._directory / name, name)


def part_path(directory: Path, job: str, label: str, number: int) -> Path:
    """Where the part of a process is until the whole is written."""
    return directory / f".{job}-{label}-part-{number}.tmp"


def write_part(path: Path, job: str, checkpoint: Checkpoint) -> None:
    """Write what another process is to take into its checkpoint.

    Raises:
        EdlError: OUTPUT_UNWRITABLE or DISK_FULL.
    """
    try:
        path.mkdir(parents=True)
        _write_files(path, job, checkpoint)
    except OSError as error:
        shutil.rmtree(path, ignore_errors=True)
        raise storage_error(error, path) from error


def read_checkpoint(path: Path) -> Checkpoint:
    """A checkpoint that another process has found to be whole.

    Raises:
        OSError, ValueError, KeyError: it is not.
    """
    return _read(path, path.name, check=False)


def _write_files(
    directory: Path, job: str, checkpoint: Checkpoint, parts: Sequence[str] = ()
) -> None:
    files = {}
    for key, value in checkpoint.documents.items():
        files[f"{key}.json"] = _write(directory / f"{key}.json", json.dumps(value).encode())
    arrays = {}
    for i, (key, array) in enumerate(checkpoint.arrays.items()):
        arrays[key] = f"array-{i:04d}.npy"
        files[arrays[key]] = _write_array(directory / arrays[key], array)
    body = {"format": _FORMAT, "job": job, "files": files, "arrays": arrays}
    if parts:
        # A part's own manifest has the checksums of its files.
        body["parts"] = {part: _described(directory / part / _MANIFEST) for part in parts}
    _write(directory / _MANIFEST, _sealed(body))
    flush_directory(directory)


def _read(directory: Path, name: str, *, check: bool = True) -> Checkpoint:
    body = _unsealed((directory / _MANIFEST).read_bytes())
    if body["format"] != _FORMAT:
        raise ValueError(f"format {body['format']} is not {_FORMAT}")
    array_files = {file: key for key, file in body["arrays"].items()}
    documents: dict[str, Any] = {}
    arrays: dict[str, Array] = {}
    for file, expected in body["files"].items():
        path = directory / file
        if check and (found := _described(path)) != expected:
            raise ValueError(f"{file} is {found}, and was {expected}")
        if file in array_files:
            arrays[array_files[file]] = _load(path)
        else:
            documents[file.removesuffix(".json")] = json.loads(path.read_bytes())
    if missing := body["arrays"].keys() - arrays.keys():
        raise ValueError(f"arrays are missing: {', '.join(sorted(missing))}")
    parts = []
    for part, expected in body.get("parts", {}).items():
        if check and (found := _described(directory / part / _MANIFEST)) != expected:
            raise ValueError(f"{part} is {found}, and was {expected}")
        parts.append(_read(directory / part, f"{name}/{part}", check=check))
    taken_at = (directory / _MANIFEST).stat().st_mtime
    return Checkpoint(documents, arrays, name, taken_at, tuple(parts), directory)


def _load(path: Path) -> Array:
    """An array of a file, read when it is used if it is large."""
    mode: Literal["r"] | None = "r" if path.stat().st_size > _CRC_CHUNK else None
    array: Array = np.load(path, mmap_mode=mode, allow_pickle=False)
    return array


def _described(path: Path) -> dict[str, int]:
    return {"bytes": path.stat().st_size, "crc32": _crc32_of(path)}


def _write(path: Path, content: bytes) -> dict[str, int]:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return {"bytes": len(content), "crc32": zlib.crc32(content)}


def _write_array(path: Path, array: Array | AsArray | InPieces) -> dict[str, int]:
    with path.open("wb") as file:
        if isinstance(array, InPieces):
            _save_pieces(file, array)
        else:
            np.save(file, array, allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())
    # Of what the file holds, and not of what was meant to be in it.
    return _described(path)


def _save_pieces(file: IO[bytes], array: InPieces) -> None:
    """As ``np.save``, with no more memory than for one piece."""
    described = {
        "descr": np.lib.format.dtype_to_descr(array.dtype),
        "fortran_order": False,
        "shape": (array.size,),
    }
    np.lib.format.write_array_header_1_0(file, described)
    for piece in array.pieces():
        file.write(piece.view(np.uint8).data)


def _crc32_of(path: Path) -> int:
    crc = 0
    with path.open("rb") as file:
        for chunk in _chunks(file.read):
            crc = zlib.crc32(chunk, crc)
    return crc


def _chunks(read: Callable[[int], bytes]) -> Iterator[bytes]:
    while chunk := read(_CRC_CHUNK):
        yield chunk


def _canonical(body: Any) -> bytes:
    return json.dumps(body, sort_keys=True).encode()


def _sealed(body: Mapping[str, Any]) -> bytes:
    return json.dumps({"crc32": zlib.crc32(_canonical(body)), "body": body}, indent=1).encode()


def _unsealed(content: bytes) -> dict[str, Any]:
    sealed = json.loads(content)
    if sealed["crc32"] != zlib.crc32(_canonical(sealed["body"])):
        raise ValueError(f"{_MANIFEST} does not have its own checksum")
    body: dict[str, Any] = sealed["body"]
    return body
