"""Makes direct connections at both ends, and proves the caller's identity on each kind.

- TCP: by its certificate, if the job is secured; otherwise not at all.
- A Unix socket next to the server's identity, in a folder that no other user can open: the kernel
  says that both ends belong to one user, and a ticket says which process of the job it is. The
  caller gets ticket and path over gRPC with mutual TLS. Nothing has to be encrypted then, which
  makes large transfers several times as fast (docs/adr/0023).
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import stat
from pathlib import Path
from typing import Protocol

from edl_proto import unix_socket
from edl_proto.identity.access_control import AccessControl
from edl_proto.identity.credentials import Peer
from edl_proto.identity.names import Identity
from edl_proto.identity.tickets import TICKET_BYTES, Tickets
from edl_proto.transport.sockets import prepare, receive, remaining, shut_down
from edl_proto.v1 import parameters_pb2 as pb

_BACKLOG = 1024
_SOCKET = "direct.sock"


class Endpoint(Protocol):
    """A place where callers connect to a server."""

    @property
    def listening(self) -> socket.socket:
        """The socket that accepts them."""
        ...

    def wrap(self, accepted: socket.socket) -> socket.socket:
        """Return the socket to use instead of the accepted one; does not wait for the caller.

        Raises:
            OSError: the caller may not come, or has left.
        """
        ...

    def identify(self, connection: socket.socket, deadline: float) -> Identity | None:
        """Have the caller prove its identity; None if the endpoint does not ask for it.

        Raises:
            OSError: it did not, or not in time.
        """
        ...

    def close(self) -> None:
        """Listen no more."""


class TcpEndpoint:
    """A TCP port.

    Args:
        host: address to listen on.
        port: 0 for a free one.
        access_control: admits the callers that the job knows; None: admits every caller.

    Raises:
        OSError: the address is not available.
    """

    def __init__(self, host: str, port: int, access_control: AccessControl | None) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        self.port: int = self.listening.getsockname()[1]
        self._access_control = access_control

    def wrap(self, accepted: socket.socket) -> socket.socket:
        prepare(accepted)
        return accepted if self._access_control is None else self._access_control.wrap(accepted)

    def identify(self, connection: socket.socket, deadline: float) -> Identity | None:
        if self._access_control is None:
            return None
        assert isinstance(connection, ssl.SSLSocket)
        return self._access_control.identify(connection, remaining(deadline))

    def close(self) -> None:
        _stop_listening(self.listening)


class LocalEndpoint:
    """A Unix socket.

    Args:
        folder: the folder of the socket, which no other user may open.
        host: address of the server's TCP port.

    Raises:
        OSError: this machine has no such sockets, or the folder is not fit for one.
    """

    def __init__(self, folder: Path, host: str) -> None:
        if not hasattr(socket, "SO_PEERCRED"):
            raise OSError("sockets of this machine do not identify their users")
        facts = folder.stat()
        if facts.st_uid != os.geteuid() or stat.S_IMODE(facts.st_mode) & 0o077:
            raise PermissionError(f"{folder} is accessible to other users")
        self._path = folder / _SOCKET
        self._host = host
        self._tickets = Tickets()
        self.listening = unix_socket.listen(self._path, _BACKLOG)
        self._inode = self._path.lstat().st_ino

    def offer(self, caller: Identity) -> pb.LocalSocket:
        """Return what this caller needs for one connection."""
        return pb.LocalSocket(
            path=str(self._path), ticket=self._tickets.issue(caller), host=self._host
        )

    def wrap(self, accepted: socket.socket) -> socket.socket:
        unix_socket.check_owner(accepted)
        return accepted

    def identify(self, connection: socket.socket, deadline: float) -> Identity:
        ticket = bytearray(TICKET_BYTES)
        receive(connection, memoryview(ticket), deadline)
        try:
            return self._tickets.redeem(bytes(ticket))
        except ValueError as error:
            raise PermissionError(str(error)) from error

    def close(self) -> None:
        _stop_listening(self.listening)
        with contextlib.suppress(OSError):
            if self._path.lstat().st_ino == self._inode:  # not that of a successor
                self._path.unlink()


def remove_socket(folder: Path) -> None:
    """Remove the Unix socket of a server that was killed and could not do so itself."""
    with contextlib.suppress(OSError):
        (folder / _SOCKET).unlink()


def _stop_listening(listening: socket.socket) -> None:
    shut_down(listening)  # wakes ``accept``, which close does not
    listening.close()


def connect_tcp(host: str, port: int, timeout_s: float, peer: Peer | None = None) -> socket.socket:
    """Connect to a port.

    Args:
        host, port: where.
        timeout_s: how long that may take.
        peer: the process that must be there; None: any process.

    Raises:
        OSError: no process listens there, or not this one.
    """
    connection = socket.create_connection((host, port), timeout_s)
    try:
        prepare(connection)
        if peer is None:
            return connection
        context = peer.credentials.client_context
        return context.wrap_socket(connection, server_hostname=peer.host)
    except BaseException:
        connection.close()
        raise


def connect_local(offered: pb.LocalSocket, timeout_s: float) -> socket.socket:
    """Connect to the Unix socket that a server has offered.

    Raises:
        OSError: it is not there, or another user's.
    """
    connection = unix_socket.connect(Path(offered.path), timeout_s)
    try:
        unix_socket.check_owner(connection)
        connection.sendall(offered.ticket)
    except BaseException:
        connection.close()
        raise
    return connection
