"""Which connections of an endpoint are open, within bounds that keep its port usable.

A connection is new until its first call: it may be anybody's. If too many are new, the oldest of
them makes room, so that idle connections keep nobody out. Later it is counted for its caller.
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

MOST_NEW = 1024
MOST_OF_ONE = 32
"""Connections of one worker, which needs one for each of its threads that make calls."""
MOST = 4096

_ROOM_S = 1.0
"""After this time a connection that has to make room is shut down once more."""


class OpenConnections:
    """See the module."""

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
            while len(self._new) >= share(8, MOST_NEW) and not self._closed:
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
            connection: of before; its first call has come.
            caller: who has proved to be that; None if that is not asked.

        Returns:
            whether it may continue; otherwise there are too many already.
        """
        with self._changed:
            if connection not in self._new or len(self._serving) >= MOST:
                return False
            if caller is not None:
                if self._of[caller] >= MOST_OF_ONE:
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
        """Take no more, and shut down all; their threads close them."""
        with self._changed:
            self._closed = True
            for connection in (*self._new, *self._serving):
                shut_down(connection)
            self._changed.notify_all()

    def _shut_down_oldest(self) -> None:
        if (oldest := next(iter(self._new), None)) is not None:
            shut_down(oldest)
