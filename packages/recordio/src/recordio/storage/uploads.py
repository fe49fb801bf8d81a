"""Uploads files and folders to a store: several files at a time, and large ones in parts.

S3 joins the parts of an upload itself. Google Cloud Storage takes the bytes of an upload one after
another, so a large file is sent there as several objects at the same time, from which the store
then composes one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from recordio.errors import UnreadableFile
from recordio.storage.stored_file import retry_transient

PART_BYTES = 16 << 20
"""The size of a request; a multiple of 256 KiB, as Google Cloud Storage demands."""

CONCURRENT_PARTS = 3
"""The number of parts of one file that are sent at the same time: s3fs would hold 500 MB of each
file by default."""

CONCURRENT_FILES = 4
"""The number of files that are sent at the same time."""

_READ_BYTES = 1 << 20
_MAX_S3_PARTS = 10_000
"""The number of parts that S3 accepts for one object."""


def send(system: Any, local: Path, path: str, callback: Any = None) -> None:
    """Copy a file or a folder to a store.

    Each file appears atomically. Only a few parts are in memory at a time, and a part that fails is
    repeated by itself.

    Args:
        system: the fsspec file system.
        local: the file or folder.
        path: the path within the store.
        callback: an fsspec callback, which gets the numbers of bytes that were sent. If it raises
            an error, the upload ends.

    Raises:
        Exception: any error of the store's client.
    """
    from fsspec.callbacks import NoOpCallback

    callback = callback or NoOpCallback()
    if _is_google(system):
        _send_to_google(system, local, path, callback)
    elif local.is_dir():
        how = _in_parts(system, max(map(_size, _files(local)), default=0))
        if how:
            how["batch_size"] = CONCURRENT_FILES
        system.put(f"{local}/", path, recursive=True, callback=callback, **how)
    else:
        system.put_file(str(local), path, callback=callback, **_in_parts(system, _size(local)))


def send_persistently(system: Any, local: Path, path: str) -> None:
    """Copy a file or a folder to a store, and repeat that while the store fails.

    Args:
        system: the fsspec file system.
        local: the file or folder.
        path: the path within the store.

    Raises:
        Exception: any error of the store's client.
    """
    try:
        retry_transient(partial(send, system, local, path), path)
    except UnreadableFile as error:
        raise error.__cause__ or error from None


def _in_parts(system: Any, nbytes: int) -> dict[str, int]:
    """Return the options with which S3's client sends files of up to ``nbytes``; else none."""
    if "s3" not in _schemes(system):
        return {}
    quantum = 256 << 10
    part = max(PART_BYTES, -(-nbytes // (_MAX_S3_PARTS * quantum)) * quantum)
    return {"chunksize": part, "max_concurrency": CONCURRENT_PARTS}


def _send_to_google(system: Any, local: Path, path: str, callback: Any) -> None:
    if not local.is_dir():
        _send_file(system, local, path, callback)
        return
    _run_concurrently(
        CONCURRENT_FILES,
        [
            partial(
                _send_file, system, file, f"{path}/{file.relative_to(local).as_posix()}", callback
            )
            for file in _files(local)
        ],
    )


def _send_file(system: Any, local: Path, path: str, callback: Any) -> None:
    nbytes = _size(local)
    if nbytes < 2 * PART_BYTES:
        branch = callback.branched(local, path)
        system.put_file(str(local), path, chunksize=PART_BYTES, callback=branch)
        return
    share = -(-nbytes // CONCURRENT_PARTS)
    ranges = [(at, min(at + share, nbytes)) for at in range(0, nbytes, share)]
    pieces = [f"{path}.edl-part-{number}" for number in range(len(ranges))]
    try:
        _run_concurrently(
            CONCURRENT_PARTS,
            [
                partial(_send_piece, system, local, span, piece, callback)
                for piece, span in zip(pieces, ranges, strict=True)
            ],
        )
        system.merge(path, pieces)
    except BaseException:
        with contextlib.suppress(Exception):  # the first error says more
            _remove(system, pieces)
        raise
    _remove(system, pieces)
    if (stored := int(system.info(path)["size"])) != nbytes:
        raise OSError(f"{path} holds {stored} of the {nbytes} bytes that were sent")


def _send_piece(system: Any, local: Path, span: tuple[int, int], path: str, callback: Any) -> None:
    at, stop = span
    file = system.open(path, "wb", block_size=PART_BYTES)
    try:
        with local.open("rb") as content:
            content.seek(at)
            while at < stop:
                part = content.read(min(_READ_BYTES, stop - at))
                if not part:
                    raise OSError(f"{local} became shorter while it was being sent")
                file.write(part)
                at += len(part)
                callback.relative_update(len(part))
        file.close()
    finally:
        file.closed = True  # after an error, what was sent must not appear


def _remove(system: Any, pieces: Sequence[str]) -> None:
    def remove(piece: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            system.rm_file(piece)

    _run_concurrently(CONCURRENT_PARTS, [partial(remove, piece) for piece in pieces])


def _run_concurrently(limit: int, acts: Sequence[Callable[[], None]]) -> None:
    """Call all functions, ``limit`` at a time; after the first error, begin no further one."""
    threads = ThreadPoolExecutor(limit, thread_name_prefix="send")
    try:
        for done in [threads.submit(act) for act in acts]:
            done.result()
    finally:
        threads.shutdown(cancel_futures=True)


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file())


def _size(file: Path) -> int:
    return file.stat().st_size


def _is_google(system: Any) -> bool:
    return "gs" in _schemes(system)


def _schemes(system: Any) -> tuple[str, ...]:
    names = system.protocol
    return (names,) if isinstance(names, str) else tuple(names)
