"""Object stores, through fsspec; ``files`` is for files of this machine.

A store's client may wait for ever, and there is no deadline that all clients support. So each call
is made in a thread of its own, which is abandoned when it has made no progress for too long.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from edl_proto.errors import EdlError, ErrorCode
from recordio.storage.stores import filesystem

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoreTimeouts:
    """How long a store may take, in seconds."""

    call_s: float = 120.0
    """For a call, or for the next bytes of one that reports progress: clients retry by themselves
    for about a minute."""

    slowest_bytes_per_s: float = 1e7
    """A move within a store reports no progress; its deadline follows from its size."""


TIMEOUTS = StoreTimeouts()

_IN_PARTS = ("s3://", "s3a://", "gs://", "gcs://")
_PART, _PARTS = 16 << 20, 3
"""Bytes of a part of an upload, and parts at the same time: s3fs would hold 500 MB in memory."""


def is_store(place: str) -> bool:
    """Whether a place is a URI of a store: ``gs://``, ``s3://``, and what else fsspec knows."""
    return "://" in place and not place.startswith("file://")


def check_literal(uri: str, option: str) -> None:
    """Check that clients of stores do not read a name as a pattern.

    Otherwise they would move and remove objects of others.

    Raises:
        EdlError: USAGE.
    """
    if any(mark in uri for mark in "*?["):
        raise EdlError(
            ErrorCode.USAGE,
            f"{uri} has a *, ? or [ in its name, which stores read as a pattern",
            where=option,
            remedy="Choose a name without them.",
        )


def exists(uri: str) -> bool:
    """Whether anything is at a URI.

    Raises:
        EdlError: OUTPUT_UNWRITABLE; the store cannot be asked.
    """

    def ask(call: _StoreCall) -> bool:
        return bool(call.system.exists(call.path))

    return _run(uri, ask)


def check_writable(uri: str) -> None:
    """Write something beside a URI, and remove it again.

    Raises:
        EdlError: OUTPUT_UNWRITABLE.
    """

    def probe(call: _StoreCall) -> None:
        parent, _, name = call.path.rpartition("/")
        beside = f"{parent}/.{name}.{uuid.uuid4().hex[:12]}.probe"
        call.system.makedirs(parent, exist_ok=True)
        call.system.pipe_file(beside, b"")
        call.system.rm_file(beside)

    _run(uri, probe)


def read(uri: str) -> bytes:
    """The content of an object; empty if there is none.

    Raises:
        EdlError: OUTPUT_UNWRITABLE; the store cannot be asked.
    """

    def fetch(call: _StoreCall) -> bytes:
        try:
            return bytes(call.system.cat_file(call.path))
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return b""

    return _run(uri, fetch)


def list_objects(uri: str) -> dict[str, int]:
    """Sizes in bytes of all objects below a URI, by their paths from there.

    Raises:
        EdlError: OUTPUT_UNWRITABLE; the store cannot be asked.
    """

    def look(call: _StoreCall) -> dict[str, int]:
        try:
            found = call.system.find(call.path, detail=True)
        except FileNotFoundError:
            return {}
        above = call.path.strip("/") + "/"
        return {
            path.lstrip("/").removeprefix(above): int(info["size"] or 0)
            for path, info in found.items()
        }

    return _run(uri, look)


def write(uri: str, content: bytes) -> None:
    """Make a small object, or replace it.

    Raises:
        EdlError: OUTPUT_UNWRITABLE.
    """

    def pipe(call: _StoreCall) -> None:
        call.system.makedirs(call.path.rpartition("/")[0], exist_ok=True)
        call.system.pipe_file(call.path, content)

    _run(uri, pipe)


def upload(local: Path, uri: str) -> None:
    """Copy a file to a URI, where it appears whole.

    A large one is sent in parts, some at a time where the store's client can, and a part that fails
    is sent again by itself.

    Raises:
        EdlError: OUTPUT_UNWRITABLE.
    """

    def copy(call: _StoreCall) -> None:
        # Clients report no progress of a small object.
        nbytes = local.stat().st_size
        call.extend_deadline(nbytes / TIMEOUTS.slowest_bytes_per_s)
        parts = (
            {"chunksize": _part_bytes(nbytes), "max_concurrency": _PARTS}
            if uri.startswith(_IN_PARTS)
            else {}
        )
        call.system.put_file(str(local), call.path, callback=call.transfer_progress(), **parts)

    _run(uri, copy)


def _part_bytes(nbytes: int) -> int:
    """S3 takes 10,000 parts at most."""
    quantum = 256 << 10  # of the parts of Google's
    return max(_PART, -(-nbytes // (10_000 * quantum)) * quantum)


def download(uri: str, local: Path) -> bool:
    """Copy an object to a new file; False if there is none.

    Raises:
        EdlError: OUTPUT_UNWRITABLE; the store, or the disk, does not let it be copied.
    """

    def copy(call: _StoreCall) -> bool:
        try:
            call.system.get_file(call.path, str(local), callback=call.transfer_progress())
        except FileNotFoundError:
            return False
        return True

    return _run(uri, copy)


def remove(uri: str) -> None:
    """Remove what is at a URI, if anything is.

    Raises:
        EdlError: OUTPUT_UNWRITABLE.
    """

    def remove_it(call: _StoreCall) -> None:
        if call.system.exists(call.path):
            call.system.rm(call.path, recursive=True)

    _run(uri, remove_it)


def writer_of(uri: str) -> str:
    """The job that writes a trained model to this URI, or was killed meanwhile; else empty."""
    return read(_marker_of(uri)).decode(errors="replace")


def _marker_of(place: str) -> str:
    """The URI of the object that names a job while the job writes to ``place``.

    A store cannot rename many objects atomically. If the writer is killed, its job recognises by
    this marker that the objects are its own, and incomplete.
    """
    parent, _, name = place.rstrip("/").rpartition("/")
    return f"{parent}/.{name}.edl-job"


def put(local: Path, uri: str, job: str) -> None:
    """Copy a file or a directory to a URI, under another name first.

    A store has no atomic renaming of many objects, so a reader may see a directory grow; it
    never sees half a file.

    Args:
        local: what to copy.
        uri: where nothing is yet.
        job: that does this, alone; what it left when it was killed is overwritten.

    Raises:
        EdlError: OUTPUT_UNWRITABLE; nothing is left behind.
    """

    def copy(call: _StoreCall) -> None:
        parent, _, name = call.path.rpartition("/")
        beside = f"{parent}/.{name}.edl-{job}.tmp"
        recursive = local.is_dir()
        system = call.system
        try:
            if system.exists(beside):
                system.rm(beside, recursive=True)
            source = f"{local}/" if recursive else str(local)
            system.put(source, beside, recursive=recursive, callback=call.transfer_progress())
            call.extend_deadline(_nbytes(local) / TIMEOUTS.slowest_bytes_per_s)
            _move(system, beside, call.path, recursive=recursive)
        finally:
            if system.exists(beside):
                system.rm(beside, recursive=True)

    _run(uri, copy)


def move(source: str, uri: str, job: str, last: str) -> None:
    """Move a directory within a store to a free URI; a marker beside it names the job.

    Args:
        source: URI of a directory, in the same store.
        uri: where it goes.
        job: that does this, alone.
        last: the object whose presence says that all others are there.

    Raises:
        EdlError: OUTPUT_UNWRITABLE.
    """

    def rename(call: _StoreCall) -> None:
        system = call.system
        _, path = filesystem(source)
        marker = _marker_of(call.path)
        nbytes = sum(each["size"] or 0 for each in system.find(path, detail=True).values())
        mark = system.cat_file(f"{path}/{last}")
        system.pipe_file(marker, job.encode())
        system.rm_file(f"{path}/{last}")
        call.extend_deadline(nbytes / TIMEOUTS.slowest_bytes_per_s)
        _move(system, path, call.path, recursive=True)
        system.pipe_file(f"{call.path}/{last}", mark)
        system.rm_file(marker)

    _run(uri, rename)


def _move(system: Any, source: str, to: str, *, recursive: bool) -> None:
    """Not with ``mv``: where a store can rename, that leaves half of the objects at each place."""
    system.copy(source, to, recursive=recursive)
    system.rm(source, recursive=recursive)


def remove_all(pattern: str) -> None:
    """Remove everything whose URI fits a pattern.

    Raises:
        EdlError: OUTPUT_UNWRITABLE.
    """

    def remove_them(call: _StoreCall) -> None:
        for path in call.system.glob(call.path):
            call.system.rm(path, recursive=True)

    _run(pattern, remove_them)


def store_error(uri: str, error: Exception) -> EdlError:
    """The error of a store's client, for a user."""
    return EdlError(
        ErrorCode.OUTPUT_UNWRITABLE,
        f"the store does not serve {uri}: {type(error).__name__}: {error}",
        where=uri,
        remedy="Check the name and your access; the store's package (s3fs, gcsfs, ...) has to be "
        "installed where the job runs.",
    )


class _StoreCall:
    """A call of a store, with the deadline of its next progress.

    Attributes:
        system: the fsspec file system.
        path: within it.
        since: when it last made progress.
        until: when it is given up without further progress.
        given_up: it must change nothing any more, if it ever continues.
    """

    system: Any
    path: str

    def __init__(self) -> None:
        self.given_up = False
        self.extend_deadline()

    def open(self, uri: str) -> None:
        self.system, self.path = filesystem(uri.rstrip("/"))

    def extend_deadline(self, more_s: float = 0.0) -> None:
        """Note progress; the next step may take ``more_s`` longer than usual.

        Raises:
            TimeoutError: the deadline is over.
        """
        if self.given_up:
            raise TimeoutError("given up")
        self.since = time.monotonic()
        self.until = self.since + TIMEOUTS.call_s + more_s

    def transfer_progress(self) -> Any:
        """The callback that fsspec calls for bytes that were sent."""
        from fsspec.callbacks import Callback

        extend = self.extend_deadline

        class Progress(Callback):  # type: ignore[misc]  # fsspec has no types
            def call(self, *args: Any, **kwargs: Any) -> None:
                extend()

            def branched(self, *args: Any, **kwargs: Any) -> Callback:
                return Progress()

        return Progress()


def _run(uri: str, act: Callable[[_StoreCall], T]) -> T:
    """Run a call as long as it makes progress.

    Raises:
        EdlError: OUTPUT_UNWRITABLE.
    """
    call = _StoreCall()
    done: list[T] = []
    failed: list[Exception] = []
    ended = threading.Event()

    def run() -> None:
        try:
            call.open(uri)
            done.append(act(call))
        except Exception as error:  # a store's client has errors of its own
            failed.append(error)
        finally:
            ended.set()

    threading.Thread(target=run, name="store", daemon=True).start()
    while not ended.wait(max(0.0, call.until - time.monotonic())):
        if time.monotonic() >= call.until:
            call.given_up = True
            silent_s = call.until - call.since
            error = TimeoutError(f"the store has made no progress for {silent_s:.0f} s")
            raise store_error(uri, error)
    if failed:
        raise store_error(uri, failed[0]) from failed[0]
    return done[0]


def _nbytes(local: Path) -> int:
    files = local.rglob("*") if local.is_dir() else (local,)
    return sum(file.stat().st_size for file in files if file.is_file())
