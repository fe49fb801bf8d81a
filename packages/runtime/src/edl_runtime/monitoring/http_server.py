"""An HTTP server that silent clients cannot block."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from edl_proto.file_limit import FileLimit

log = logging.getLogger(__name__)

_ROOM_S = 1.0
"""How long to wait for a connection that has to make room."""

_RETRY_S = 0.05
"""The pause between two attempts to accept a connection when no file can be opened for it."""


class BoundedHttpServer(ThreadingHTTPServer):
    """Has a limited number of connections with a thread each; the oldest makes room for new ones.

    A browser or a scraper that loses an idle connection so makes another one.

    Args:
        host: address to listen on.
        port: 0 for any.
        handler: answers requests.
        most: connections at a time.

    Raises:
        OSError: the address is not available.
    """

    daemon_threads = True
    # Two servers on one port would answer at random.
    allow_reuse_port = False

    def __init__(
        self, host: str, port: int, handler: type[BaseHTTPRequestHandler], most: int
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.request_queue_size = most
        self._most = most
        self._changed = threading.Condition()
        self._open: dict[Any, None] = {}  # the oldest first
        self._limit = FileLimit("HTTP connections")
        super().__init__((host, port), handler)

    def get_request(self) -> tuple[Any, Any]:
        try:
            return super().get_request()
        except OSError as error:
            if self._limit.is_reason(error):
                with self._changed:
                    self._end_oldest()
                time.sleep(_RETRY_S)  # the caller tries again at once
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changed:
            while len(self._open) >= self._most:
                self._end_oldest()
                self._changed.wait(_ROOM_S)
            self._open[request] = None
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread was to be had, and none will close it
            self._forget(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._forget(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a reader left", exc_info=True)

    def _end_oldest(self) -> None:
        if (oldest := next(iter(self._open), None)) is not None:
            del self._open[oldest]
            self._open[oldest] = None  # if it does not end, the next one is tried
            with contextlib.suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)

    def _forget(self, request: Any) -> None:
        with self._changed:
            self._open.pop(request, None)
            self._changed.notify_all()
