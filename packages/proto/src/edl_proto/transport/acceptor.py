"""Accepts the connections of an endpoint, and serves each in a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from socket import socket

from edl_proto.file_limit import FileLimit
from edl_proto.transport.endpoints import Endpoint
from edl_proto.transport.open_connections import OpenConnections

log = logging.getLogger(__name__)

_PAUSE_S = 0.05


def accept_connections(
    endpoint: Endpoint,
    connections: OpenConnections,
    what: str,
    serve: Callable[[socket], None],
    thread_name: str,
) -> None:
    """Accept connections until ``connections`` is closed.

    Args:
        endpoint: where callers connect.
        connections: admits each connection as a new one.
        what: names the connections in logs, such as ``direct connections``.
        serve: is called in a thread for each connection, and has to remove it from ``connections``.
        thread_name: of these threads.
    """
    limit = FileLimit(what)
    while not connections.is_closed:
        try:
            accepted, _ = endpoint.listening.accept()
        except OSError as error:
            if limit.is_reason(error):
                connections.make_room()
            time.sleep(_PAUSE_S)  # until there is room; or the caller has left
            continue
        try:
            connection = endpoint.wrap(accepted)
        except OSError as error:
            log.debug("one of the %s is refused: %s", what, error)
            accepted.close()
            continue
        if not connections.add(connection):
            connection.close()
            continue
        try:
            threading.Thread(
                target=serve, args=(connection,), name=thread_name, daemon=True
            ).start()
        except RuntimeError as error:
            log.warning("one of the %s is refused: %s", what, error)
            connections.remove(connection)
            connection.close()
