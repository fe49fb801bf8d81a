"""TCP relays between processes, whose connections a test can break or block."""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
import threading
from collections.abc import Callable

_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: closing sends a reset."""


class TcpRelay:
    """Forwards connections to one address to another one.

    Args:
        listen: host and port of this end; port 0 for any.
        to: host and port of the other, or the path of its socket.

    Attributes:
        carried: bytes so far, both ways.
        cut_at: connections are cut when so many bytes have been carried.
        holds: data that this says yes to is held back, with all that follows, until ``restore``.
        held: whether it has.
    """

    def __init__(self, listen: tuple[str, int], to: tuple[str, int] | str) -> None:
        self.carried = 0
        self.cut_at = sys.maxsize
        self.holds: Callable[[bytes], bool] = lambda piece: False
        self.held = threading.Event()
        self._at = listen
        self._to = to
        self._open = threading.Event()
        self._open.set()
        self._lock = threading.Lock()
        self._ends: set[socket.socket] = set()
        self._listening: socket.socket | None = None
        self.restore()

    @property
    def port(self) -> int:
        return self._at[1]

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
            self._at = self._listening.getsockname()
            threading.Thread(target=self._accept, args=(self._listening,), daemon=True).start()

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                near, _ = listening.accept()
            except OSError:
                return
            try:
                far = self._connect()
            except OSError:
                near.close()
                continue
            for end in (near, far):
                if end.family == socket.AF_INET:
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._ends |= {near, far}
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(source, target), daemon=True).start()

    def _connect(self) -> socket.socket:
        if not isinstance(self._to, str):
            return socket.create_connection(self._to)
        far = socket.socket(socket.AF_UNIX)
        far.connect(self._to)
        return far

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(1 << 16):
                if self.holds(piece):
                    self.block()
                    self.held.set()
                self._open.wait()
                piece = piece[: max(0, self.cut_at - self.carried)]
                target.sendall(piece)
                self.carried += len(piece)
                if self.carried >= self.cut_at:
                    self.cut()
                    return
            self._open.wait()
            target.shutdown(socket.SHUT_WR)
