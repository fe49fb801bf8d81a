"""Places in object stores, through fsspec; places on this machine are left to ``files``.

A store's client may wait for ever, and has no deadline that holds for all of them. So each call is
made in a thread of its own, which is left behind when it has got nowhere for too long.
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

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoreTimeouts:
    """How long a store may take, in seconds."""

    call_s: float = 120.0
    """For a call, or for the next bytes of one that tells of them: clients try again by themselves
    for a minute or so."""

    slowest_bytes_per_s: float = 1e7
    """A move within a store reports no progress; its deadline follows from its size."""


TIMEOUTS = StoreTimeouts()


def is_store(place: str) -> bool:
    """Whether a place is a URI of a store: ``gs://``, ``s3://``, and what else fsspec knows."""
    return "://" in place and not place.startswith("file://")


def check_literal(uri: str, option: str) -> None:
    """Make sure that clients of stores take a name as it is.

    They take some for patterns, and would move and remove what belongs to others.

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

    def ask(at: _Place) -> bool:
        return bool(at.system.exists(at.path))

    return _do(uri, ask)


def check_writable(uri: str) -> None:
    """Write something beside a URI, and remove it again.

    Raises:
        EdlError: OUTPUT_UNWRITABLE.
    """

    def probe(at: _Place) -> None:
        parent, _, name = at.path.rpartition("/")
        beside = f"{parent}/.{name}.{uuid.uuid4().hex[:12]}.probe"
        at.system.makedirs(parent, exist_ok=True)
        at.system.pipe_file(beside, b"")
        at.system.rm_file(beside)

    _do(uri, probe)


def read(uri: str) -> bytes:
    """The content of an object; empty if there is none.

    Raises:
        EdlError: OUTPUT_UNWRITABLE; the store cannot be asked.
    """

    def fetch(at: _Place) -> bytes:
        try:
            return bytes(at.system.cat_file(at.path))
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return b""

    return _do(uri, fetch)


def listing(uri: str) -> dict[str, int]:
    """Octets of every object below a URI, by its path from there.

    Raises:
        EdlError: OUTPUT_UNWRITABLE; the store cannot be asked.
    """

    def look(at: _Place) -> dict[str, int]:
        try:
            found = at.system.find(at.path, detail=True)
        except FileNotFoundError:
            return {}
        above = at.path.strip("/") + "/"
        return {
            path.lstrip("/").removeprefix(above): int(info["size"] or 0)
            for path, info in found.items()
        }

    return _do(uri, look)


def write(uri: str, content: bytes) -> None:
    """Make a small object, or replace it.

    Raises:
        EdlError: OUTPUT_UNWRITABLE.
    """

    def pipe(at: _Place) -> None:
        at.system.makedirs(at.path.rpartition("/")[0], exist_ok=True)
        at.system.pipe_file(at.path, content)

    _do(uri, pipe)


def send(local: Path, uri: str) -> None:
    """Copy a file to a URI, where it appears whole.

    Raises:
        EdlError: OUTPUT_UNWRITABLE.
    """

    def copy(at: _Place) -> None:
        # Clients report no progress of a small object.
        at.allow(local.stat().st_size / TIMEOUTS.slowest_bytes_per_s)
        at.system.put_file(str(local), at.path, callback=at.transfer_progress())

    _do(uri, copy)


def fetch(uri: str, local: Path) -> bool:
    """Copy an object to a new file; False if there is none.

    Raises:
        EdlError: OUTPUT_UNWRITABLE; the store, or the disk, does not let it be copied.
    """

    def copy(at: _Place) -> bool:
        try:
            at.system.get_file(at.path, str(local), callback=at.transfer_progress())
        except FileNotFoundError:
            return False
        return True

    return _do(uri, copy)


def remove(uri: str) -> None:
    """Remove what is at a URI, if anything is.

    Raises:
        EdlError: OUTPUT_UNWRITABLE.
    """

    def remove_it(at: _Place) -> None:
        if at.system.exists(at.path):
            at.system.rm(at.path, recursive=True)

    _do(uri, remove_it)


def being_written_by(uri: str) -> str:
    """The job that writes a trained model to this place, or was killed when it did; or empty."""
    return read(_note_beside(uri)).decode(errors="replace")


def _note_beside(place: str) -> str:
    """Where the name of a job lies while it writes to this place.

    A store has no atomic renaming of many objects. If the writer is killed, its job knows by this
    note that what is there is its own, and incomplete.
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

    def copy(at: _Place) -> None:
        parent, _, name = at.path.rpartition("/")
        beside = f"{parent}/.{name}.edl-{job}.tmp"
        recursive = local.is_dir()
        system = at.system
        try:
            if system.exists(beside):
                system.rm(beside, recursive=True)
            source = f"{local}/" if recursive else str(local)
            system.put(source, beside, recursive=recursive, callback=at.transfer_progress())
            at.allow(_nbytes(local) / TIMEOUTS.slowest_bytes_per_s)
            system.mv(beside, at.path, recursive=recursive)
        finally:
            if system.exists(beside):
                system.rm(beside, recursive=True)

    _do(uri, copy)


def move(source: str, uri: str, job: str, last: str) -> None:
    """Move a directory within a store to where nothing is; a note beside it names the job.

    Args:
        source: URI of a directory, in the same store.
        uri: where it goes.
        job: that does this, alone.
        last: the object whose presence says that all others are there.

    Raises:
        EdlError: OUTPUT_UNWRITABLE.
    """
    import fsspec

    def rename(at: _Place) -> None:
        system = at.system
        _, path = fsspec.core.url_to_fs(source)
        note = _note_beside(at.path)
        nbytes = sum(each["size"] or 0 for each in system.find(path, detail=True).values())
        mark = system.cat_file(f"{path}/{last}")
        system.pipe_file(note, job.encode())
        system.rm_file(f"{path}/{last}")
        at.allow(nbytes / TIMEOUTS.slowest_bytes_per_s)
        system.mv(path, at.path, recursive=True)
        system.pipe_file(f"{at.path}/{last}", mark)
        system.rm_file(note)

    _do(uri, rename)


def remove_all(pattern: str) -> None:
    """Remove everything whose URI fits a pattern.

    Raises:
        EdlError: OUTPUT_UNWRITABLE.
    """

    def remove_them(at: _Place) -> None:
        for path in at.system.glob(at.path):
            at.system.rm(path, recursive=True)

    _do(pattern, remove_them)


def unserved(uri: str, error: Exception) -> EdlError:
    """What a store's own error means for a person."""
    return EdlError(
        ErrorCode.OUTPUT_UNWRITABLE,
        f"the store does not serve {uri}: {type(error).__name__}: {error}",
        where=uri,
        remedy="Check the name and your access; the store's package (s3fs, gcsfs, ...) has to be "
        "installed where the job runs.",
    )


class _Place:
    """Where a call is at work, and until when it may get nowhere.

    Attributes:
        system: the fsspec file system.
        path: within it.
        since: when it got somewhere last.
        until: when it is given up.
        given_up: it must not change anything any more, should it ever go on.
    """

    system: Any
    path: str

    def __init__(self) -> None:
        self.given_up = False
        self.allow()

    def open(self, uri: str) -> None:
        import fsspec

        self.system, self.path = fsspec.core.url_to_fs(uri.rstrip("/"))
        # Another process may have written since this one looked.
        self.system.invalidate_cache()

    def allow(self, more_s: float = 0.0) -> None:
        """It gets somewhere; what comes next may take so much longer.

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

        allow = self.allow

        class Told(Callback):  # type: ignore[misc]
            def call(self, *args: Any, **kwargs: Any) -> None:
                allow()

            def branched(self, *args: Any, **kwargs: Any) -> Callback:
                return Told()

        return Told()


def _do(uri: str, act: Callable[[_Place], T]) -> T:
    """Do something with a place, as long as it gets somewhere.

    Raises:
        EdlError: OUTPUT_UNWRITABLE.
    """
    place = _Place()
    done: list[T] = []
    failed: list[Exception] = []
    ended = threading.Event()

    def run() -> None:
        try:
            place.open(uri)
            done.append(act(place))
        except Exception as error:  # a store's client has errors of its own
            failed.append(error)
        finally:
            ended.set()

    threading.Thread(target=run, name="store", daemon=True).start()
    while not ended.wait(max(0.0, place.until - time.monotonic())):
        if time.monotonic() >= place.until:
            place.given_up = True
            silent_s = place.until - place.since
            error = TimeoutError(f"the store has given no sign of life for {silent_s:.0f} s")
            raise unserved(uri, error)
    if failed:
        raise unserved(uri, failed[0]) from failed[0]
    return done[0]


def _nbytes(local: Path) -> int:
    files = local.rglob("*") if local.is_dir() else (local,)
    return sum(file.stat().st_size for file in files if file.is_file())
