"""Files that are replaced whole, never half-written."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from pathlib import Path

from edl_proto.errors import EdlError, ErrorCode

_FULL = (errno.ENOSPC, errno.EDQUOT)


def is_full(error: OSError) -> bool:
    """Whether a write failed for lack of space."""
    return error.errno in _FULL


def storage_error(error: OSError, path: Path | str) -> EdlError:
    """What a failed write means for a person."""
    if is_full(error):
        return EdlError(
            ErrorCode.DISK_FULL,
            f"there is no space left to write {path}",
            where=str(path),
            remedy="Free some space on that disk, or choose a place on another one.",
        )
    return EdlError(
        ErrorCode.OUTPUT_UNWRITABLE,
        f"{path} cannot be written: {error.strerror or error}",
        where=str(path),
        remedy="Check that the place exists and that you may write there.",
    )


def replace_file(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Give a file a new content at once: a reader sees the old one or the new one.

    Args:
        path: the file; its directory exists.
        content: everything that it will hold.
        durable: also survive a loss of power.

    Raises:
        OSError: the file could not be written; it is as it was.
    """
    # Not by the process's number: in containers that share a folder all masters have the same.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    if durable:
        flush_directory(path.parent)


def flush_directory(path: Path) -> None:
    """Make names in a directory survive a loss of power."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
