"""The connections of a ring: each member listens, and connects to the next one by rank.

In a secured job both ends prove who they are, as everywhere (docs/adr/0021). A connection begins
with a greeting, which says to which generation it belongs. One that comes before this worker has
entered its generation is kept until then.
"""

from __future__ import annotations

import logging
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edl_proto.identity.access_control import AccessControl
from edl_proto.identity.credentials import Credentials
from edl_proto.identity.names import Role
from edl_proto.transport.acceptor import accept_connections
from edl_proto.transport.endpoints import TcpEndpoint, connect_tcp
from edl_proto.transport.open_connections import OpenConnections
from edl_proto.transport.sockets import receive
from edl_worker.collectives.ring import RingGroup
from edl_worker.core.collectives import CollectiveGroup, GenerationEnded, PeerUnreachable
from edl_worker.core.replicas import Generation, Part

log = logging.getLogger(__name__)

REACH_S = 10.0
"""How long a peer may not be reached until the master is told."""

_POLL_S = 0.05
_GREETING = struct.Struct("<4sIQ64s")  # magic, worker, generation, incarnation
_MAGIC = b"ring"
_GREETING_S = 10.0  # that a caller may take to prove who it is, and to greet
_MAX_ARRIVED = 64


@dataclass(frozen=True, slots=True)
class _Greeting:
    worker: int
    generation: int
    incarnation: str


class Ring:
    """The place where the peers of this worker reach it, and the way to reach them.

    Args:
        worker: number of this worker.
        host: address of this machine that its peers can reach.
        port: 0 for a free one.
        credentials: of this worker; None if the job is not secured.
        reach_s: how long a peer may not be reached until that is an error.

    Raises:
        OSError: the address is not available.
    """

    def __init__(
        self,
        worker: int,
        host: str,
        port: int = 0,
        credentials: Credentials | None = None,
        reach_s: float = REACH_S,
    ) -> None:
        self._worker = worker
        self._credentials = credentials
        self._reach_s = reach_s
        access_control = None if credentials is None else AccessControl(credentials)
        self._endpoint = TcpEndpoint(host, port, access_control)
        self._host = f"[{host}]" if ":" in host else host
        self._connections = OpenConnections()
        self._changed = threading.Condition()
        self._arrived: dict[_Greeting, socket.socket] = {}
        threading.Thread(
            target=accept_connections,
            args=(
                self._endpoint,
                self._connections,
                "connections of a ring",
                self._welcome,
                "ring-greet",
            ),
            name="ring-accept",
            daemon=True,
        ).start()

    @property
    def address(self) -> str:
        """``host:port`` at which peers reach this worker."""
        return f"{self._host}:{self._endpoint.port}"

    def close(self) -> None:
        """Accept no more peers."""
        self._connections.close()
        self._endpoint.close()
        with self._changed:
            arrived, self._arrived = self._arrived, {}
        for connection in arrived.values():
            connection.close()

    def meet(
        self, generation: Generation, parts: Sequence[Part], is_over: Callable[[], bool]
    ) -> CollectiveGroup:
        """Meet the other members of a generation; see ``Collectives.meet``.

        Raises:
            PeerUnreachable: the next member cannot be reached.
        """
        members = generation.members
        rank = members.index(self._worker)
        self._drop_earlier(generation)
        following = self._connect(generation, (rank + 1) % len(members), is_over)
        try:
            previous = self._await(
                _Greeting(members[rank - 1], generation.number, generation.incarnation), is_over
            )
        except BaseException:
            following.close()
            raise
        return RingGroup(previous, following, rank, len(members), parts, is_over)

    def release(self) -> None:
        """Do nothing: a ring keeps nothing for the next generation."""

    # --- the next member -------------------------------------------------------------------

    def _connect(
        self, generation: Generation, rank: int, is_over: Callable[[], bool]
    ) -> socket.socket:
        worker, address = generation.members[rank], generation.addresses[rank]
        host, _, port = address.rpartition(":")
        credentials = self._credentials
        peer = None if credentials is None else credentials.to(Role.WORKER, worker)
        greeting = _GREETING.pack(
            _MAGIC, self._worker, generation.number, generation.incarnation.encode()
        )
        ends = time.monotonic() + self._reach_s
        while True:
            if is_over():
                raise GenerationEnded("the master has ended the generation")
            try:
                connection = connect_tcp(host.strip("[]"), int(port), self._reach_s / 4, peer)
                connection.sendall(greeting)
                return connection
            except OSError as error:
                if time.monotonic() > ends:
                    raise PeerUnreachable(worker, f"{address}: {error}") from error
                log.debug("worker %d at %s is not there: %s", worker, address, error)
            time.sleep(_POLL_S)

    # --- the member before -----------------------------------------------------------------

    def _await(self, greeting: _Greeting, is_over: Callable[[], bool]) -> socket.socket:
        with self._changed:
            while greeting not in self._arrived:
                if is_over():
                    raise GenerationEnded("the master has ended the generation")
                self._changed.wait(_POLL_S)
            return self._arrived.pop(greeting)

    def _drop_earlier(self, generation: Generation) -> None:
        """Close what came for earlier generations, and has not been used."""
        with self._changed:
            for greeting in list(self._arrived):
                is_same = greeting.incarnation == generation.incarnation
                if is_same and greeting.generation < generation.number:
                    self._arrived.pop(greeting).close()

    def _welcome(self, connection: socket.socket) -> None:
        """Have a caller prove who it is and greet, and keep its connection."""
        try:
            greeting = self._identify(connection)
        except (OSError, ValueError) as error:
            log.debug("a caller is no peer: %s", error)
            greeting = None
        self._connections.remove(connection)
        if greeting is None:
            connection.close()
            return
        with self._changed:
            if (former := self._arrived.pop(greeting, None)) is not None:
                former.close()
            while len(self._arrived) >= _MAX_ARRIVED:
                self._arrived.pop(next(iter(self._arrived))).close()
            self._arrived[greeting] = connection
            self._changed.notify_all()

    def _identify(self, connection: socket.socket) -> _Greeting:
        """Return the greeting of a caller.

        Raises:
            OSError: the caller has not proved who it is, or left.
            ValueError: it is no worker, or greets as another one.
        """
        deadline = time.monotonic() + _GREETING_S
        caller = self._endpoint.identify(connection, deadline)
        received = bytearray(_GREETING.size)
        receive(connection, memoryview(received), deadline)
        magic, worker, number, incarnation = _GREETING.unpack(received)
        if magic != _MAGIC:
            raise ValueError("no greeting")
        if caller is not None and (caller.role, caller.number) != (Role.WORKER, worker):
            raise ValueError(f"{caller.name} greets as worker {worker}")
        return _Greeting(worker, number, incarnation.rstrip(b"\0").decode())
