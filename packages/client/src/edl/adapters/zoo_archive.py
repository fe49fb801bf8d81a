"""Packs a model zoo's folder; equal folders give equal archives."""

from __future__ import annotations

import gzip
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from edl.core.quantities import size
from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2

# As in a trained model's copy of the zoo: what tools leave behind is no part of it.
_LEFT_OUT = frozenset(
    (
        *("__pycache__", ".git", ".hg", ".svn", ".venv", ".mypy_cache", ".pytest_cache"),
        *(".ruff_cache", ".ipynb_checkpoints"),
    )
)
_MOST_NBYTES = 1 << 30
_MOST_FILES = 20_000


def pack(folder: Path, into: IO[bytes]) -> None:
    """Write a folder as a tar archive in gzip.

    Raises:
        EdlError: LIMIT_EXCEEDED: this is more than a model zoo; MODEL_NOT_FOUND: a part of it
            cannot be read.
    """
    files = list(_files(folder))
    try:
        _check_size(folder, files)
        with (
            gzip.GzipFile(fileobj=into, mode="wb", compresslevel=5, mtime=0, filename="") as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            for path in files:
                tar.add(path, str(path.relative_to(folder)), recursive=False, filter=_plain)
    except OSError as error:
        raise EdlError(
            error_pb2.MODEL_NOT_FOUND,
            f"the model zoo cannot be read: {error.strerror or error}",
            where=str(error.filename or folder),
            remedy="Check the permissions of this file, or remove it from the zoo.",
        ) from error


def _files(folder: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        links = [name for name in folders if (Path(root) / name).is_symlink()]
        for name in sorted([*names, *links]):
            if not name.endswith(".pyc"):
                yield Path(root) / name


def _check_size(folder: Path, files: list[Path]) -> None:
    total = sum(path.lstat().st_size for path in files)
    if total <= _MOST_NBYTES and len(files) <= _MOST_FILES:
        return
    largest = max(files, key=lambda path: path.lstat().st_size)
    raise EdlError(
        error_pb2.LIMIT_EXCEEDED,
        f"the model zoo has {len(files)} files, {size(total)}; the limit of an image is"
        f" {_MOST_FILES} files, {size(_MOST_NBYTES)}",
        where=str(largest if total > _MOST_NBYTES else folder),
        remedy="Move data out of the zoo and name it with --data, or name a smaller --model-zoo.",
    )


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Without owners and times, which say nothing about the zoo."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    return entry
