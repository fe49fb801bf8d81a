"""Unix sockets that only their owner may use, in folders with names of any length."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

MAX_PATH_BYTES = 107
"""The kernel's limit on the bytes of the path of a socket."""

_CREDENTIALS = struct.Struct("3i")  # of SO_PEERCRED: process, user, group


def listen(path: Path, backlog: int) -> socket.socket:
    """Listen at a path; a socket that an earlier process left is replaced.

    Raises:
        OSError: nothing can be made there.
    """
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _address(path) as address:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(address)
            # Before it has a name, which another process could give to another file meanwhile.
            os.fchmod(listening.fileno(), 0o600)
            listening.bind(address)
        listening.listen(backlog)
    except BaseException:
        listening.close()
        raise
    return listening


def connect(path: Path, timeout_s: float) -> socket.socket:
    """Connect to the process that listens at a path. Raises: OSError: nothing does."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        with _address(path) as address:
            connection.connect(address)
    except BaseException:
        connection.close()
        raise
    return connection


def check_owner(connection: socket.socket) -> None:
    """Make sure that the process at the other end runs as the same user, according to the kernel.

    Raises:
        PermissionError: it is not.
    """
    size = _CREDENTIALS.size
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    _, user, _ = _CREDENTIALS.unpack(credentials)
    if user != os.geteuid():
        raise PermissionError(f"the other end of a connection belongs to user {user}")


@contextlib.contextmanager
def _address(path: Path) -> Iterator[str]:
    """Give an address of the path that the kernel takes, wherever its folder is."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
