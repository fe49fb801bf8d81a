"""TCP relays between processes, whose connections a test can break or block."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: closing sends a reset."""


class TcpRelay:
    """Forwards connections to one address to another one.

    Args:
        listen: host and port of this end.
        to: host and port of the other.

    Attributes:
        carried: bytes so far, both ways.
    """

    def __init__(self, listen: tuple[str, int], to: tuple[str, int]) -> None:
        self.carried = 0
        self._at = listen
        self._to = to
        self._open = threading.Event()
        self._open.set()
        self._lock = threading.Lock()
        self._ends: set[socket.socket] = set()
        self._listening: socket.socket | None = None
        self.restore()

    def cut(self) -> None:
        """Break all connections, and refuse new ones, until ``restore``."""
        listening, self._listening = self._listening, None
        if listening is not None:
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            listening.close()
        with self._lock:
            ends, self._ends = self._ends, set()
        for end in ends:
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RD)  # wakes up who reads from it
            end.close()
        self._open.set()

    def block(self) -> None:
        """Hold back all data, without any error, until ``restore``, which delivers it."""
        self._open.clear()

    def restore(self) -> None:
        """Forward again."""
        self._open.set()
        if self._listening is None:
            self._listening = socket.create_server(self._at)
            threading.Thread(target=self._accept, args=(self._listening,), daemon=True).start()

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                near, _ = listening.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._to)
            except OSError:
                near.close()
                continue
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._ends |= {near, far}
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(source, target), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(1 << 16):
                self._open.wait()
                target.sendall(piece)
                self.carried += len(piece)
            self._open.wait()
            target.shutdown(socket.SHUT_WR)
