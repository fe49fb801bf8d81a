"""Object stores, through fsspec; ``files`` is for files of this machine."""

from __future__ import annotations

import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

from edl_master.adapters import store_calls
from edl_master.adapters.store_calls import StoreCall, run_call, run_persistently
from edl_proto.errors import EdlError, ErrorCode
from recordio.storage.stores import filesystem
from recordio.storage.uploads import send

_STORES_WITHOUT_FOLDERS = frozenset(("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"))
"""Schemes of stores whose clients would make a bucket where they are asked for a folder."""


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


def exists(uri: str, *, persistently: bool = False) -> bool:
    """Return whether anything is at a URI.

    Args:
        persistently: wait while a store is unavailable; before a job has begun, an error at
            once is better.

    Raises:
        EdlError: OUTPUT_UNWRITABLE; the store cannot be asked.
    """

    def ask(call: StoreCall) -> bool:
        return bool(call.system.exists(call.path))

    return (run_persistently if persistently else run_call)(uri, ask)


def check_writable(uri: str) -> None:
    """Write something next to a URI, and remove it again. Raises: EdlError: OUTPUT_UNWRITABLE."""

    def probe(call: StoreCall) -> None:
        parent, _, name = call.path.rpartition("/")
        probe = f"{parent}/.{name}.{uuid.uuid4().hex[:12]}.probe"
        _make_folder(call, parent)
        call.system.pipe_file(probe, b"")
        call.system.rm_file(probe)

    run_call(uri, probe)


def _make_folder(call: StoreCall, path: str) -> None:
    """Make a folder where a store has such; a bucket is never made, its name may be mistyped."""
    protocol = call.system.protocol
    schemes = {protocol} if isinstance(protocol, str) else set(protocol)
    if not schemes & _STORES_WITHOUT_FOLDERS:
        call.system.makedirs(path, exist_ok=True)


def read(uri: str, *, persistently: bool = False) -> bytes:
    """Return the content of an object; empty if there is none.

    Args:
        persistently: wait while a store is unavailable; before a job has begun, an error at
            once is better.

    Raises:
        EdlError: OUTPUT_UNWRITABLE; the store cannot be asked.
    """

    def fetch(call: StoreCall) -> bytes:
        try:
            return bytes(call.system.cat_file(call.path))
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return b""

    return (run_persistently if persistently else run_call)(uri, fetch)


def list_objects(uri: str) -> dict[str, int]:
    """Return the sizes in bytes of all objects below a URI, by their paths from there.

    Raises:
        EdlError: OUTPUT_UNWRITABLE; the store cannot be asked.
    """

    def list_sizes(call: StoreCall) -> dict[str, int]:
        try:
            found = call.system.find(call.path, detail=True)
        except FileNotFoundError:
            return {}
        above = call.path.strip("/") + "/"
        return {
            path.lstrip("/").removeprefix(above): int(info["size"] or 0)
            for path, info in found.items()
        }

    return run_call(uri, list_sizes)


def write(uri: str, content: bytes) -> None:
    """Make a small object, or replace it. Raises: EdlError: OUTPUT_UNWRITABLE."""

    def pipe(call: StoreCall) -> None:
        _make_folder(call, call.path.rpartition("/")[0])
        call.system.pipe_file(call.path, content)

    run_call(uri, pipe)


def upload(local: Path, uri: str) -> None:
    """Copy a file to a URI, where it appears whole. Raises: EdlError: OUTPUT_UNWRITABLE."""

    def copy(call: StoreCall) -> None:
        # Clients report no progress of a small object.
        nbytes = local.stat().st_size
        call.extend_deadline(nbytes / store_calls.TIMEOUTS.slowest_bytes_per_s)
        send(call.system, local, call.path, call.transfer_progress())

    run_call(uri, copy)


def download(uri: str, local: Path) -> bool:
    """Copy an object to a new file; False if there is none.

    Raises:
        EdlError: OUTPUT_UNWRITABLE; the store, or the disk, does not let it be copied.
    """

    def copy(call: StoreCall) -> bool:
        try:
            call.system.get_file(call.path, str(local), callback=call.transfer_progress())
        except FileNotFoundError:
            return False
        return True

    return run_call(uri, copy)


def remove(uri: str) -> None:
    """Remove what is at a URI, if anything is. Raises: EdlError: OUTPUT_UNWRITABLE."""

    def remove_it(call: StoreCall) -> None:
        if call.system.exists(call.path):
            call.system.rm(call.path, recursive=True)

    run_call(uri, remove_it)


def writer_of(uri: str) -> str:
    """Return the job that writes a trained model to this URI, or died doing so; else empty."""
    return read(_marker_of(uri)).decode(errors="replace")


def _marker_of(place: str) -> str:
    """Return the URI of the object that names a job while the job writes to ``place``.

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
    begun: list[str] = []

    def copy(call: StoreCall) -> None:
        parent, _, name = call.path.rpartition("/")
        temporary = f"{parent}/.{name}.edl-{job}.tmp"
        recursive = local.is_dir()
        system = call.system
        try:
            for left in (temporary, *begun):
                if system.exists(left):
                    system.rm(left, recursive=True)
            send(system, local, temporary, call.transfer_progress())
            call.extend_deadline(sum(_sizes(local)) / store_calls.TIMEOUTS.slowest_bytes_per_s)
            begun[:] = [call.path]
            _copy(system, temporary, call.path, recursive=recursive)
        finally:
            if system.exists(temporary):
                system.rm(temporary, recursive=True)

    run_persistently(uri, copy)


def move(source: str, uri: str, job: str, last: str) -> None:
    """Move a directory within a store to a free URI; a marker next to it names the job.

    Args:
        source: URI of a directory, in the same store.
        uri: where it goes.
        job: that does this, alone.
        last: the object whose presence says that all others are there.

    Raises:
        EdlError: OUTPUT_UNWRITABLE.
    """
    mark: list[bytes] = []
    begun: list[str] = []

    def copy(call: StoreCall) -> None:
        system = call.system
        _, path = filesystem(source)
        marker = _marker_of(call.path)
        nbytes = sum(each["size"] or 0 for each in system.find(path, detail=True).values())
        if not mark:
            mark.append(system.cat_file(f"{path}/{last}"))
        system.pipe_file(marker, job.encode())
        for left in (f"{path}/{last}", *begun):
            if system.exists(left):
                system.rm(left, recursive=True)
        begun[:] = [call.path]
        call.extend_deadline(nbytes / store_calls.TIMEOUTS.slowest_bytes_per_s)
        _copy(system, path, call.path, recursive=True)
        system.pipe_file(f"{call.path}/{last}", mark[0])
        system.rm_file(marker)

    run_persistently(uri, copy)
    with suppress(EdlError):  # the job removes later what is left
        remove(source)


def _copy(system: Any, source: str, to: str, *, recursive: bool) -> None:
    """Copy objects; ``mv`` would rename them one by one, and could stop half-way."""
    # With the slash, a client that takes the target for a directory copies into it, not below it.
    system.copy(f"{source}/" if recursive else source, to, recursive=recursive)


def remove_all(pattern: str) -> None:
    """Remove everything whose URI fits a pattern. Raises: EdlError: OUTPUT_UNWRITABLE."""

    def remove_them(call: StoreCall) -> None:
        for path in call.system.glob(call.path):
            call.system.rm(path, recursive=True)

    run_call(pattern, remove_them)


def _sizes(local: Path) -> list[int]:
    files = local.rglob("*") if local.is_dir() else (local,)
    return [file.stat().st_size for file in files if file.is_file()]
