"""Signals between the members of one generation on one machine, over Unix sockets.

A peer that ends closes its sockets, whatever it dies of: so the others notice at once. A peer that
is frozen sends nothing; the master notices that, and ends the generation.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Callable
from pathlib import Path

from edl_proto import unix_socket
from edl_worker.core.collectives import GenerationEnded

POLL_S = 0.05
"""How often a wait looks whether it is still wanted."""

_CONNECT_S = 0.002
"""Between two attempts to connect to a peer."""

_RANK_BYTES = 4
_SIGNAL = b"\x01"


class PeerSignals:
    """Connections to all peers, and the number of signals that each has sent.

    All members send the same signals in the same order, so a number says how far a peer is.

    Attributes:
        sent: the number of signals that this member has sent.

    Args:
        folder: where the members of this generation meet, and no others.
        rank: of this member.
        size: number of members.
        is_over: whether the master has ended the generation; may be called often.

    Raises:
        GenerationEnded: before all members were there.
        PermissionError: a process of another user is among them.
    """

    def __init__(self, folder: Path, rank: int, size: int, is_over: Callable[[], bool]) -> None:
        self.sent = 0
        self._is_over = is_over
        self._counts = dict.fromkeys((peer for peer in range(size) if peer != rank), 0)
        self._connections: dict[int, socket.socket] = {}
        self._gone: set[int] = set()
        self._selector = selectors.DefaultSelector()
        try:
            self._meet(folder, rank, size)
        except BaseException:
            self.close()
            raise

    def _meet(self, folder: Path, rank: int, size: int) -> None:
        """Connect to the members of lower rank, and accept those of higher rank."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        own = folder / f"{rank}.socket"
        try:
            with unix_socket.listen(own, size) as listening:
                listening.settimeout(POLL_S)
                for peer in range(rank):
                    self._connections[peer] = self._connect(folder / f"{peer}.socket", rank)
                while len(self._connections) < size - 1:
                    with contextlib.suppress(TimeoutError):
                        self._accept(listening)
                    self._check()
        finally:
            with contextlib.suppress(OSError):
                own.unlink()
                folder.rmdir()  # by the last one

    def _accept(self, listening: socket.socket) -> None:
        connection, _ = listening.accept()
        unix_socket.check_owner(connection)
        peer = int.from_bytes(connection.recv(_RANK_BYTES, socket.MSG_WAITALL), "little")
        self._connections[peer] = connection

    def _connect(self, path: Path, rank: int) -> socket.socket:
        while True:
            self._check()
            try:
                connection = unix_socket.connect(path, timeout_s=POLL_S)
            except OSError:
                time.sleep(_CONNECT_S)  # the peer has not begun to listen
                continue
            unix_socket.check_owner(connection)
            connection.sendall(rank.to_bytes(_RANK_BYTES, "little"))
            return connection

    def share_file(self, descriptor: int) -> None:
        """Give an open file to all peers; each calls ``receive_file``. Before the first signal."""
        for connection in self._connections.values():
            connection.setblocking(True)
            socket.send_fds(connection, [_SIGNAL], [descriptor])

    def receive_file(self) -> int:
        """Return the file that the member of rank 0 gives; the caller closes it.

        Raises:
            GenerationEnded: it is gone.
        """
        connection = self._connections[0]
        connection.settimeout(POLL_S)
        while True:
            self._check()
            with contextlib.suppress(TimeoutError):
                received, files, _, _ = socket.recv_fds(connection, 1, 1)
                if not received or not files:
                    raise GenerationEnded("member 0 is gone")
                return files[0]

    def begin(self) -> None:
        """Begin to count: only signals come from now on."""
        for peer, connection in self._connections.items():
            connection.setblocking(False)
            self._selector.register(connection, selectors.EVENT_READ, peer)

    def send(self) -> None:
        """Send one signal to every peer; a peer that is gone is noticed by ``wait``."""
        self.sent += 1
        for connection in self._connections.values():
            with contextlib.suppress(OSError):
                connection.send(_SIGNAL)

    def wait(self, patience_s: float = 0.0) -> None:
        """Wait until every peer has sent as many signals as this member.

        Args:
            patience_s: how long to wait in any case, even if the generation is over.

        Raises:
            GenerationEnded: they will not all come.
        """
        waited_s = 0.0
        while missing := {peer for peer, sent in self._counts.items() if sent < self.sent}:
            if lost := missing & self._gone:
                raise GenerationEnded(f"member {min(lost)} is gone")
            if not self._receive_signals(POLL_S):
                waited_s += POLL_S
                if waited_s > patience_s:
                    self._check()

    def is_awaited(self, within_s: float) -> bool:
        """Wait a little until a peer has sent more signals than this member, or is gone.

        Returns:
            Whether that is so.
        """
        if not (self._gone or max(self._counts.values(), default=0) > self.sent):
            self._receive_signals(within_s)
        return bool(self._gone) or max(self._counts.values(), default=0) > self.sent

    def _receive_signals(self, within_s: float) -> bool:
        """Count the signals that have come, if any come in time; return whether some have."""
        ready = self._selector.select(within_s)
        for key, _ in ready:
            self._receive(key.data)
        return bool(ready)

    def _receive(self, peer: int) -> None:
        try:
            received = self._connections[peer].recv(4096)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        self._counts[peer] += len(received)
        if not received:
            self._gone.add(peer)
            self._selector.unregister(self._connections[peer])

    def _check(self) -> None:
        if self._is_over():
            raise GenerationEnded("the master has ended the generation")

    def close(self) -> None:
        """Leave: the peers notice."""
        self._selector.close()
        for connection in self._connections.values():
            connection.close()
