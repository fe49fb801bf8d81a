"""Socket operations of both ends of a direct connection, with TLS or without."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Sequence
from typing import Any

# A peer that vanished without closing is detected within about 10 s + 5 s, as in ``channels``.
_KEEPALIVE = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 1))

_MORE: int = getattr(socket, "MSG_MORE", 0)
"""The next send follows at once: it shares packets, and the peer wakes up once."""

_JOINED_BYTES = 1 << 14
"""Smaller pieces are sent as one where the kernel does not gather: with TLS, on Unix sockets."""


def prepare(connection: socket.socket) -> None:
    """Set the options of a new TCP connection, before anything is sent."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if (option := getattr(socket, name, None)) is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


def shut_down(connection: socket.socket) -> None:
    """End a connection that another thread uses; that thread sees an error or the end."""
    with contextlib.suppress(OSError):
        # Of the socket: TLS would forget its state, and that thread would continue without it.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def send_together(
    connection: socket.socket, pieces: Sequence[Any], deadline: float | None = None
) -> None:
    """Send pieces in order, small ones in one packet or record; raises what ``receive`` raises."""
    flags = _MORE
    if isinstance(connection, ssl.SSLSocket) or connection.family == socket.AF_UNIX:
        flags = 0
        if sum(map(len, pieces)) <= _JOINED_BYTES:
            pieces = (b"".join(pieces),)
    for number, piece in enumerate(pieces, 1):
        if deadline is not None:
            connection.settimeout(remaining(deadline))
        connection.sendall(piece, flags if number < len(pieces) else 0)


def receive(connection: socket.socket, target: memoryview, deadline: float | None = None) -> None:
    """Fill a buffer.

    Args:
        deadline: on the clock of ``time.monotonic``; None: the timeout of the connection applies to
            each read.

    Raises:
        OSError: the connection has ended, or the time is over.
    """
    at = 0
    while at < len(target):
        if deadline is not None:
            connection.settimeout(remaining(deadline))
        n = connection.recv_into(target[at:])
        if not n:
            raise ConnectionResetError(f"the stream ended after {at} of {len(target)} bytes")
        at += n


def remaining(deadline: float) -> float:
    """Return the seconds until a deadline. Raises: TimeoutError: there are none."""
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s
