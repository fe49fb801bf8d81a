"""Ranges of objects over HTTP in the threads that want them, past the clients of stores.

The clients of S3 and of Google Cloud Storage receive through one event loop, which costs several
times the processor time of a plain download. They still find objects, credentials and signatures,
and explain errors: what does not come at once here is asked of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

Address = Callable[[], tuple[str, Mapping[str, str]]]
"""Gives the URL of an object and the headers of a request, signed for an hour at least."""

_KEPT_S = 300.0
"""How long a signature is used."""

_PASSING = frozenset((408, 429, 500, 502, 503, 504))
_CONNECT_S, _READ_S = 10.0, 60.0
_CONNECTIONS = 32

_pool: Any = None


def _connections() -> Any:
    global _pool
    if _pool is None:
        import urllib3

        _pool = urllib3.PoolManager(
            maxsize=_CONNECTIONS,
            timeout=urllib3.Timeout(connect=_CONNECT_S, read=_READ_S),
            retries=False,
        )
    return _pool


def _forget_connections() -> None:
    """A child process must not read what its parent has asked for."""
    global _pool
    _pool = None


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
        self._refused = False

    def fetch(self, start: int, stop: int) -> bytes | None:
        """The bytes from an offset to another one; None if the client of the store must be asked.

        Whatever fails, fails again there, or does not.
        """
        if self._refused:
            return None
        try:
            url, headers = self._sign()
            asked = {**headers, "Range": f"bytes={start}-{stop - 1}"}
            answer = _connections().request(
                "GET", url, headers=asked, redirect=False, preload_content=False
            )
            content = self._content(answer, start, stop)
        except Exception:  # of the client, which signs, or of the network
            return None
        return content if content is not None and len(content) == stop - start else None

    def _content(self, answer: Any, start: int, stop: int) -> bytes | None:
        """What an answer brings; no more of it than was asked for is read."""
        self._refused = answer.status != 206 and answer.status not in _PASSING
        if (
            answer.status == 206
            and answer.headers.get("Content-Range", "").startswith(f"bytes {start}-{stop - 1}/")
            and self._etag in ("", answer.headers.get("ETag"))
        ):
            # Not decompressed: a range of an object that is stored compressed cannot be.
            content: bytes = answer.read(stop - start, decode_content=False)
            answer.release_conn()
            return content
        answer.close()
        return None

    def _sign(self) -> tuple[str, Mapping[str, str]]:
        now = time.monotonic()
        if self._signed is None or now - self._signed[0] > _KEPT_S:
            url, headers = self._address()
            parts = urlsplit(url)
            if parts.scheme in getproxies() and not proxy_bypass(parts.hostname or ""):
                self._refused = True
                raise ConnectionError("the client of the store knows the proxy")
            self._signed = now, url, headers
        return self._signed[1:]
