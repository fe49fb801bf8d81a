"""The archive of a model zoo; equal files make equal archives."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path
from typing import IO

from edl.plugins.texts import size
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.limits import MAX_ZOO_FILES, MAX_ZOO_NBYTES
from edl_runtime.model import zoo_files


def pack(folder: Path, into: IO[bytes]) -> None:
    """Write a folder as a tar archive in gzip.

    Raises:
        EdlError: LIMIT_EXCEEDED: this is more than a model zoo; MODEL_NOT_FOUND: a part of it
            cannot be read.
    """
    files = [folder / name for name in zoo_files.select(folder).paths]
    try:
        _check_size(folder, files)
        with (
            gzip.GzipFile(fileobj=into, mode="wb", compresslevel=5, mtime=0, filename="") as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            for path in files:
                # A link's target may be no part of the archive.
                tar.add(path.resolve(), str(path.relative_to(folder)), filter=_plain)
    except OSError as error:
        raise EdlError(
            ErrorCode.MODEL_NOT_FOUND,
            f"the model zoo cannot be read: {error.strerror or error}",
            where=str(error.filename or folder),
            remedy="Check the permissions of this file, or remove it from the zoo.",
        ) from error


def _check_size(folder: Path, files: list[Path]) -> None:
    total = sum(path.stat().st_size for path in files)
    if total <= MAX_ZOO_NBYTES and len(files) <= MAX_ZOO_FILES:
        return
    largest = max(files, key=lambda path: path.stat().st_size)
    raise EdlError(
        ErrorCode.LIMIT_EXCEEDED,
        f"the model zoo has {len(files)} files, {size(total)}; the limit of an image is"
        f" {MAX_ZOO_FILES} files, {size(MAX_ZOO_NBYTES)}",
        where=str(largest if total > MAX_ZOO_NBYTES else folder),
        remedy="Move data out of the zoo and name it with --data, or name a smaller --model-zoo.",
    )


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Remove owners and times, which say nothing about the zoo."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    return entry
