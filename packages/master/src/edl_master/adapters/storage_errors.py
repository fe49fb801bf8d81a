"""Errors of disks, as errors for users."""

from __future__ import annotations

import errno
from pathlib import Path

from edl_proto.errors import EdlError, ErrorCode

_FULL = (errno.ENOSPC, errno.EDQUOT)


def is_full(error: OSError) -> bool:
    """Return whether a write failed for lack of space."""
    return error.errno in _FULL


def storage_error(error: OSError, path: Path | str) -> EdlError:
    """Translate a failed write into an error for the user."""
    if is_full(error):
        return EdlError(
            ErrorCode.DISK_FULL,
            f"there is no space left to write {path}",
            where=str(path),
            remedy="Free some space on that disk, or choose a folder on another disk.",
        )
    return EdlError(
        ErrorCode.OUTPUT_UNWRITABLE,
        f"{path} cannot be written: {error.strerror or error}",
        where=str(path),
        remedy="Check that the folder or bucket exists and that you may write there.",
    )
