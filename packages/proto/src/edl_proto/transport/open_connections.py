"""The open connections of an endpoint, within limits that keep its port usable.

A connection is new until its first call, because its caller is unknown. If too many are new, the
oldest of them makes room, so that idle connections keep no caller out. Later it is counted for its
caller.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections import Counter

from edl_proto.file_limit import share
from edl_proto.identity.names import Identity
from edl_proto.transport.sockets import shut_down

log = logging.getLogger(__name__)

MAX_NEW = 1024
MAX_PER_CALLER = 32
"""Connections of one worker, which needs one for each of its threads that make calls."""
MAX_SERVING = 4096

_ROOM_S = 1.0
"""After this time a connection that has to make room is shut down once more."""


class OpenConnections:
    """Limits and counts the connections of one endpoint."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._new: dict[socket.socket, None] = {}  # the oldest first
        self._serving: dict[socket.socket, Identity | None] = {}
        self._of: Counter[Identity] = Counter()
        self._closed = False

    @property
    def is_closed(self) -> bool:
        return self._closed

    def add(self, connection: socket.socket) -> bool:
        """Take a new connection, as soon as there is room; returns False after ``close``."""
        with self._changed:
            while len(self._new) >= share(8, MAX_NEW) and not self._closed:
                self._shut_down_oldest()
                self._changed.wait(_ROOM_S)
            if not self._closed:
                self._new[connection] = None
            return not self._closed

    def make_room(self) -> None:
        """Shut down the connection that has been new for longest, if there is one."""
        with self._changed:
            self._shut_down_oldest()

    def begin(self, connection: socket.socket, caller: Identity | None) -> bool:
        """Count a new connection for its caller.

        Args:
            connection: the connection, whose first call has come.
            caller: the proved identity of the caller; None in a job that is not secured.

        Returns:
            whether it may continue; otherwise there are too many already.
        """
        with self._changed:
            if connection not in self._new or len(self._serving) >= MAX_SERVING:
                return False
            if caller is not None:
                if self._of[caller] >= MAX_PER_CALLER:
                    return False
                self._of[caller] += 1
            del self._new[connection]
            self._serving[connection] = caller
            self._changed.notify_all()
            return True

    def remove(self, connection: socket.socket) -> None:
        """Forget a connection, which its thread closes."""
        with self._changed:
            self._new.pop(connection, None)
            caller = self._serving.pop(connection, None)
            if caller is not None:
                self._of[caller] -= 1
            self._changed.notify_all()

    def close(self) -> None:
        """Take no more connections, and shut down all of them; their threads close them."""
        with self._changed:
            self._closed = True
            for connection in (*self._new, *self._serving):
                shut_down(connection)
            self._changed.notify_all()

    def _shut_down_oldest(self) -> None:
        if (oldest := next(iter(self._new), None)) is not None:
            shut_down(oldest)
