"""Checks data before a job starts."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

import recordio
from edl.core.locations import scheme
from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2
from recordio.formats import sniff


def check(patterns: Iterable[str], form: str, option: str) -> None:
    """Check that every pattern names readable files, and that not all of them are empty.

    Args:
        form: format that the user says the files have; empty: by content.

    Raises:
        EdlError: DATA_NOT_FOUND, DATA_UNREADABLE or DATA_EMPTY.
    """
    for pattern in patterns:
        files = expand(pattern, option)
        sizes = [_size(file, option) for file in files]
        if not any(sizes):
            more = f" and {len(files) - 1} more" if len(files) > 1 else ""
            raise EdlError(
                error_pb2.DATA_EMPTY,
                f"{option} names only files without records",
                where=files[0] + more,
                remedy="Name files that contain records.",
            )
        if not form:
            _check_format(files[0], option)


def expand(pattern: str, option: str) -> list[str]:
    """The files that a pattern names.

    Raises:
        EdlError: DATA_NOT_FOUND or DATA_UNREADABLE.
    """
    try:
        return recordio.expand(pattern)
    except recordio.NoSuchData as error:
        raise EdlError(
            error_pb2.DATA_NOT_FOUND,
            f"{option}: {error}",
            where=pattern,
            remedy="Correct the pattern. In quotes, the shell passes it on as it is."
            + (f" Repeat {option} for several patterns." if "," in pattern else ""),
        ) from None
    except recordio.RecordError as error:
        raise _unreadable(error, pattern, option) from None
    except Exception as error:
        # A store's client has errors of its own: no such bucket, no credentials, no network.
        raise _unreadable(error, pattern, option) from error


def _size(file: str, option: str) -> int:
    """Octets of a local file; 1 for one elsewhere, which its listing has shown to exist."""
    if scheme(file):
        return 1
    try:
        about = os.stat(file)
        if not stat.S_ISREG(about.st_mode):  # to open a pipe may take forever
            raise _unreadable("it is not a regular file", file, option)
        with open(file, "rb"):
            return about.st_size
    except OSError as error:
        raise _unreadable(f"{error.strerror}", file, option) from None


def _check_format(file: str, option: str) -> None:
    try:
        sniff(file)
    except recordio.RecordError as error:
        if scheme(file):
            return  # the master will check; this machine may lack the credentials
        raise EdlError(
            error_pb2.DATA_UNREADABLE,
            f"{option}: {error}",
            where=file,
            remedy="Name the format with --data-format, or convert the data with edl data convert.",
        ) from None


def _unreadable(error: object, where: str, option: str) -> EdlError:
    foreign = isinstance(error, Exception) and not isinstance(error, recordio.RecordError)
    reason = f"{type(error).__name__}: {error}" if foreign else str(error)
    return EdlError(
        error_pb2.DATA_UNREADABLE,
        f"{option} cannot be read: {reason}",
        where=where,
        remedy="Check its name, its permissions, and access to its store.",
    )
