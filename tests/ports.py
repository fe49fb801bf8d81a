"""Ports for servers that cannot choose one themselves."""

from __future__ import annotations

import contextlib
import random
import socket


def free_port() -> int:
    """Return a port that is free now, and that the system gives to no process that asks for any."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port
