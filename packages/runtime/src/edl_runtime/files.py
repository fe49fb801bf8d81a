"""Atomic replacement of files, and readers that never block on a pipe."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path
from typing import BinaryIO


def replace_file(
    path: Path, content: bytes, *, durable: bool = False, is_private: bool = False
) -> None:
    """Replace the content of a file atomically.

    Args:
        path: the file; its directory exists.
        content: everything that it will hold.
        durable: also survive a loss of power.
        is_private: only the owner can ever read or write it.

    Raises:
        OSError: the file could not be written; it is as it was.
    """
    # Not by the process's number: in containers that share a folder all masters have the same.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(temporary, flags, 0o600 if is_private else 0o666), "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    if durable:
        flush(path.parent)


def flush(path: Path) -> None:
    """Make the content of a file, or the names in a directory, survive a loss of power."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def open_regular(path: Path, *, follow: bool = True) -> BinaryIO:
    """Open a regular file for reading; to open a pipe without a writer would block forever.

    Args:
        follow: a link as the last part of the path. It is not to be followed where containers
            write, and the content goes elsewhere.

    Raises:
        OSError: it cannot be opened, or is not a regular file.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    fd = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "the path is not a regular file", str(path))
    return open(fd, "rb")


def open_appending(path: Path) -> BinaryIO:
    """Open a regular file to write at its end, made if there is none.

    For folders that containers write to: a link there would lead to any file of the user, and
    to open a pipe without a reader would block forever.

    Raises:
        OSError: it cannot be opened, or is not a regular file.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(path, flags, 0o666)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "the path is not a regular file", str(path))
    return open(fd, "ab")


def read_regular(path: Path) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: it cannot be read, or is not a regular file.
    """
    with open_regular(path) as file:
        return file.read()
