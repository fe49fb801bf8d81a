"""Ranges of objects over HTTP in the threads that want them, past the clients of stores.

The clients of S3 and of Google Cloud Storage receive through one event loop, which costs several
times the processor time of a plain download. They still find objects, credentials and signatures,
and explain errors: what does not come at once here is asked of them.
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
"""Gives the URL of an object and the headers of a request, signed for an hour at least."""

_KEPT_S = 300.0
"""How long a signature is used, and a refusal remembered: credentials change, and proxies."""

_PASSING = frozenset((408, 429, 500, 502, 503, 504))
_CONNECT_S, _READ_S = 10.0, 60.0
_CONNECTIONS = 32
"""To one server, kept for the next requests."""


class _Connections:
    """Connections that wait for a request, by scheme and address of the server.

    The standard library's client takes half the processor time of urllib3 for each request.
    """

    def __init__(self) -> None:
        self._idle: dict[tuple[str, str], list[http.client.HTTPConnection]] = {}
        self._lock = threading.Lock()

    def take(self, server: tuple[str, str]) -> http.client.HTTPConnection | None:
        """One that the server has not closed; None without one."""
        while True:
            with self._lock:
                idle = self._idle.get(server)
                connection = idle.pop() if idle else None
            if connection is None or not _has_something_to_say(connection):
                return connection
            connection.close()

    def give_back(self, server: tuple[str, str], connection: http.client.HTTPConnection) -> None:
        """After an answer was read to its end."""
        with self._lock:
            idle = self._idle.setdefault(server, [])
            if connection.sock is not None and len(idle) < _CONNECTIONS:
                idle.append(connection)
                return
        connection.close()


def _connect(scheme: str, address: str) -> http.client.HTTPConnection:
    kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
    connection = kind(address, timeout=_CONNECT_S)
    connection.connect()
    connection.sock.settimeout(_READ_S)
    return connection


def _has_something_to_say(connection: http.client.HTTPConnection) -> bool:
    """Whether the server has closed a connection, or sent what nobody asked for."""
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


_connections = _Connections()


def _forget_connections() -> None:
    """A child process must not read what its parent has asked for."""
    global _connections
    _connections = _Connections()


os.register_at_fork(after_in_child=_forget_connections)


class DirectRequests:
    """Asks for ranges of one version of an object.

    Args:
        address: of this version: the store refuses it once the object has changed.
        etag: that answers have; empty: the address names the version.
    """

    def __init__(self, address: Address, etag: str = "") -> None:
        self._address = address
        self._etag = etag
        self._signed: tuple[float, str, Mapping[str, str]] | None = None
        self._refused_at: float | None = None

    def fetch(self, start: int, stop: int) -> bytes | None:
        """The bytes from an offset to another one; None if the client of the store must be asked.

        Whatever fails, fails again there, or does not.
        """
        if self._refused_at is not None:
            if time.monotonic() - self._refused_at < _KEPT_S:
                return None
            self._refused_at = self._signed = None
        try:
            url, headers = self._sign()
            asked = {**headers, "Range": f"bytes={start}-{stop - 1}"}
            content = self._ask(urlsplit(url), asked, start, stop)
        except Exception:  # of the client, which signs, or of the network
            return None
        return content if content is not None and len(content) == stop - start else None

    def _ask(
        self, url: SplitResult, headers: Mapping[str, str], start: int, stop: int
    ) -> bytes | None:
        """What a server answers, if it is the range."""
        server = url.scheme, url.netloc
        target = url._replace(scheme="", netloc="").geturl()
        connections = _connections

        def ask(connection: http.client.HTTPConnection) -> bytes | None:
            content = None
            try:
                connection.request("GET", target, headers=headers)
                answer = connection.getresponse()
                content = self._content(answer, start, stop)
            finally:
                # What is not read to its end is of no use to anybody else.
                if content is None or not answer.isclosed():
                    connection.close()
                else:
                    connections.give_back(server, connection)
            return content

        while (kept := connections.take(server)) is not None:
            # The server may close it in this very moment.
            with contextlib.suppress(ConnectionError):
                return ask(kept)
        return ask(_connect(*server))

    def _content(self, answer: http.client.HTTPResponse, start: int, stop: int) -> bytes | None:
        """What an answer brings; no more of it than was asked for is read.

        It is received into the bytes that are returned, without a copy.
        """
        if answer.status != 206 and answer.status not in _PASSING:
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
        if self._signed is None or now - self._signed[0] > _KEPT_S:
            url, headers = self._address()
            parts = urlsplit(url)
            if parts.scheme in getproxies() and not proxy_bypass(parts.hostname or ""):
                self._refused_at = now
                raise ConnectionError("the client of the store knows the proxy")
            self._signed = now, url, headers
        return self._signed[1:]
