"""Fetches ranges of objects over HTTP in the calling thread, without the clients of stores.

The clients of S3 and of Google Cloud Storage receive through one event loop, which costs several
times the processor time of a plain download. They still find objects, credentials and signatures,
and explain errors: a range that cannot be fetched here at once is requested through them.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import select
import threading
import time
from collections.abc import Callable, Mapping
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

Address = Callable[[], tuple[str, Mapping[str, str]]]
"""Returns the URL of an object and the headers of a request, signed for an hour at least."""

_VALID_S = 300.0
"""How long a signature is used and a refusal is remembered: credentials and proxies may change."""

_TRANSIENT_STATUSES = frozenset((408, 429, 500, 502, 503, 504))
_CONNECT_S, _READ_S = 10.0, 60.0
_MAX_IDLE = 32
"""The number of idle connections to one server."""


class _Connections:
    """Idle connections, by scheme and address of the server.

    They are of the standard library, which takes half the processor time of urllib3 per request.
    """

    def __init__(self) -> None:
        self._idle: dict[tuple[str, str], list[http.client.HTTPConnection]] = {}
        self._lock = threading.Lock()

    def take(self, server: tuple[str, str]) -> http.client.HTTPConnection | None:
        """Return a connection that the server has not closed; None if there is none."""
        while True:
            with self._lock:
                idle = self._idle.get(server)
                connection = idle.pop() if idle else None
            if connection is None or not _has_input(connection):
                return connection
            connection.close()

    def give_back(self, server: tuple[str, str], connection: http.client.HTTPConnection) -> None:
        """Give back a connection whose last answer was read to its end."""
        with self._lock:
            idle = self._idle.setdefault(server, [])
            if connection.sock is not None and len(idle) < _MAX_IDLE:
                idle.append(connection)
                return
        connection.close()


def _connect(scheme: str, address: str) -> http.client.HTTPConnection:
    kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
    connection = kind(address, timeout=_CONNECT_S)
    connection.connect()
    connection.sock.settimeout(_READ_S)
    return connection


def _has_input(connection: http.client.HTTPConnection) -> bool:
    """Return whether the server has closed an idle connection, or sent unrequested bytes."""
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


_connections = _Connections()


def _forget_connections() -> None:
    """Forget all connections in a child process, which must not read its parent's answers."""
    global _connections
    _connections = _Connections()


os.register_at_fork(after_in_child=_forget_connections)


class DirectRequests:
    """Requests ranges of one version of an object.

    Args:
        address: returns the address of this version, which the store refuses for any other one.
        etag: the ETag that answers must have; empty if the address names the version.
    """

    def __init__(self, address: Address, etag: str = "") -> None:
        self._address = address
        self._etag = etag
        self._signed: tuple[float, str, Mapping[str, str]] | None = None
        self._refused_at: float | None = None

    def fetch(self, start: int, stop: int) -> bytes | None:
        """Return the bytes between two offsets; None if the store's client must fetch them.

        Errors lead to None, too: the store's client retries them, or explains them.
        """
        if self._refused_at is not None:
            if time.monotonic() - self._refused_at < _VALID_S:
                return None
            self._refused_at = self._signed = None
        try:
            url, headers = self._sign()
            range_headers = {**headers, "Range": f"bytes={start}-{stop - 1}"}
            content = self._request(urlsplit(url), range_headers, start, stop)
        except Exception:  # of the store's client, which signs, or of the network
            return None
        return content if content is not None and len(content) == stop - start else None

    def _request(
        self, url: SplitResult, headers: Mapping[str, str], start: int, stop: int
    ) -> bytes | None:
        """Return the server's answer; None if it is not the range."""
        server = url.scheme, url.netloc
        target = url._replace(scheme="", netloc="").geturl()
        connections = _connections

        def request(connection: http.client.HTTPConnection) -> bytes | None:
            content = None
            try:
                connection.request("GET", target, headers=headers)
                answer = connection.getresponse()
                content = self._content(answer, start, stop)
            finally:
                # A connection can be used again only after the whole answer was read.
                if content is None or not answer.isclosed():
                    connection.close()
                else:
                    connections.give_back(server, connection)
            return content

        while (idle := connections.take(server)) is not None:
            # The server may be closing it at this moment.
            with contextlib.suppress(ConnectionError):
                return request(idle)
        return request(_connect(*server))

    def _content(self, answer: http.client.HTTPResponse, start: int, stop: int) -> bytes | None:
        """Read the content of an answer, up to the requested size; None if it is not the range.

        It is received into the returned bytes, without a copy.
        """
        if answer.status != 206 and answer.status not in _TRANSIENT_STATUSES:
            self._refused_at = time.monotonic()
        if (
            answer.status == 206
            and answer.headers.get("Content-Range", "").startswith(f"bytes {start}-{stop - 1}/")
            and self._etag in ("", answer.headers.get("ETag"))
        ):
            return answer.read(stop - start)
        return None

    def _sign(self) -> tuple[str, Mapping[str, str]]:
        now = time.monotonic()
        if self._signed is None or now - self._signed[0] > _VALID_S:
            url, headers = self._address()
            parts = urlsplit(url)
            if parts.scheme in getproxies() and not proxy_bypass(parts.hostname or ""):
                self._refused_at = now
                raise ConnectionError("only the client of the store supports proxies")
            self._signed = now, url, headers
        return self._signed[1:]
