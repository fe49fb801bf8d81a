"""Files and folders that go to a store: several files at a time, and large ones in parts.

S3 joins the parts of an upload itself. Google Cloud Storage takes the bytes of an upload one after
another, so a large file is sent there as some objects at the same time, of which the store then
composes one.
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

PART = 16 << 20
"""Bytes of a request; a multiple of 256 KiB, as Google's store wants it."""

PARTS = 3
"""Parts of one file at the same time: its client would have S3 hold 500 MB per file."""

FILES = 4
"""Files at the same time."""

_READ = 1 << 20
_S3_PARTS = 10_000
"""That S3 takes at most."""


def send(system: Any, local: Path, path: str, callback: Any = None) -> None:
    """Copy a file or a folder to a store.

    A file appears whole. Within the memory of a few parts, as many bytes are on their way as the
    store's client can send at the same time; a part that fails is sent again by itself.

    Args:
        system: the fsspec file system.
        local: what to copy.
        path: within the store.
        callback: of fsspec; told of bytes that were sent. If it raises, sending ends.

    Raises:
        Exception: whatever the store's client raises.
    """
    from fsspec.callbacks import NoOpCallback

    callback = callback or NoOpCallback()
    if _is_google(system):
        _send_to_google(system, local, path, callback)
    elif local.is_dir():
        how = _in_parts(system, max(map(_size, _files(local)), default=0))
        if how:
            how["batch_size"] = FILES
        system.put(f"{local}/", path, recursive=True, callback=callback, **how)
    else:
        system.put_file(str(local), path, callback=callback, **_in_parts(system, _size(local)))


def send_persistently(system: Any, local: Path, path: str) -> None:
    """The same, and all of it again while the store is out of order, for as long as for reading.

    Raises:
        Exception: whatever the store's client raises.
    """
    try:
        retry_transient(partial(send, system, local, path), path)
    except UnreadableFile as error:
        raise error.__cause__ or error from None


def _in_parts(system: Any, nbytes: int) -> dict[str, int]:
    """How the client of S3 sends a file of so many bytes, or smaller ones."""
    if "s3" not in _schemes(system):
        return {}
    quantum = 256 << 10
    part = max(PART, -(-nbytes // (_S3_PARTS * quantum)) * quantum)
    return {"chunksize": part, "max_concurrency": PARTS}


def _send_to_google(system: Any, local: Path, path: str, callback: Any) -> None:
    if not local.is_dir():
        _send_file(system, local, path, callback)
        return
    _together(
        FILES,
        [
            partial(
                _send_file, system, file, f"{path}/{file.relative_to(local).as_posix()}", callback
            )
            for file in _files(local)
        ],
    )


def _send_file(system: Any, local: Path, path: str, callback: Any) -> None:
    nbytes = _size(local)
    if nbytes < 2 * PART:
        system.put_file(str(local), path, chunksize=PART, callback=callback.branched(local, path))
        return
    share = -(-nbytes // PARTS)
    ranges = [(at, min(at + share, nbytes)) for at in range(0, nbytes, share)]
    pieces = [f"{path}.edl-part-{number}" for number in range(len(ranges))]
    try:
        _together(
            PARTS,
            [
                partial(_send_piece, system, local, where, piece, callback)
                for piece, where in zip(pieces, ranges, strict=True)
            ],
        )
        system.merge(path, pieces)
    except BaseException:
        with contextlib.suppress(Exception):  # the first error says more
            _remove(system, pieces)
        raise
    _remove(system, pieces)
    if (there := int(system.info(path)["size"])) != nbytes:
        raise OSError(f"{path} holds {there} of the {nbytes} bytes that were sent")


def _send_piece(system: Any, local: Path, where: tuple[int, int], path: str, callback: Any) -> None:
    at, stop = where
    file = system.open(path, "wb", block_size=PART)
    try:
        with local.open("rb") as content:
            content.seek(at)
            while at < stop:
                part = content.read(min(_READ, stop - at))
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

    _together(PARTS, [partial(remove, piece) for piece in pieces])


def _together(limit: int, acts: Sequence[Callable[[], None]]) -> None:
    """Do everything, so many at the same time; after the first error, nothing more is begun."""
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
