"""Public keys of an issuer of identity tokens, from a file or over HTTP."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast
from urllib.parse import SplitResult, urlsplit

import jwt

from edl_proto.transport.sockets import remaining

log = logging.getLogger(__name__)

_TIMEOUT_S = 5.0
"""The timeout of connecting, and of receiving each piece of an answer."""

_DEADLINE_S = 15.0
"""The timeout of receiving a whole answer, however it is split."""

_MAX_BYTES = 1 << 20
_PAUSE_S = 30.0
"""The minimum time between two fetches: unknown key ids cost an attacker nothing."""

_FRESH_S = 3600.0
"""The age at which keys are fetched anew, so that withdrawn keys expire."""

_TRUSTED_S = 86400.0
"""The age at which keys are no longer trusted if the issuer cannot be reached."""

_MIN_RSA_BITS = 2048
_KINDS = ("RSA", "EC", "OKP")
"""The kinds of public keys. ``oct`` is a shared secret: its verifier could also sign."""


class KeysUnavailable(Exception):
    """The issuer cannot be reached, or another call is fetching its keys."""


@dataclass(frozen=True, slots=True)
class KeySource:
    """The location of an issuer's keys (a JWK set, RFC 7517).

    Attributes:
        url: the URL, with https, or with http on loopback; empty if there is a file.
        file: a file that is read again as often as a URL would be; None if there is a URL.
        ca_file: the certificates to trust; if empty, those of the machine.
        bearer_token_file: a token that is sent to the URL, as Kubernetes demands it; the file is
            read at each fetch.
    """

    url: str = ""
    file: Path | None = None
    ca_file: str = ""
    bearer_token_file: str = ""


class IssuerKeys(Protocol):
    """Finds public keys of one issuer."""

    def find(self, key_id: str) -> jwt.PyJWK | None:
        """Return a key by its id; None if there is none. Raises: KeysUnavailable."""
        ...


class CachedIssuerKeys:
    """The keys of an issuer, kept in memory. Safe for threads.

    No call waits for a fetch that another call makes: an issuer that is slow, and callers that send
    unknown key ids, would hold all threads of the service.

    Args:
        source: the location of the keys.
        clock: returns monotonic seconds.
    """

    def __init__(self, source: KeySource, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._fetching = threading.Lock()
        self._keys: Mapping[str, jwt.PyJWK] = {}
        self._fetched = float("-inf")
        self._next = float("-inf")

    def find(self, key_id: str) -> jwt.PyJWK | None:
        """Return a key by its id; fetch the keys if it is unknown, or if the keys are old.

        Raises:
            KeysUnavailable: there are no keys that may still be trusted.
        """
        age = self._clock() - self._fetched
        if age > _FRESH_S or key_id not in self._keys:
            self._refresh(wanted=key_id)
        if self._clock() - self._fetched > _TRUSTED_S:
            raise KeysUnavailable("the keys of the issuer cannot be fetched")
        return self._keys.get(key_id)

    def _refresh(self, wanted: str) -> None:
        if not self._fetching.acquire(blocking=False):
            if wanted in self._keys:
                return
            raise KeysUnavailable("the keys of the issuer are being fetched")
        try:
            if self._clock() < self._next:
                return
            self._next = self._clock() + _PAUSE_S
            self._keys = _parse(_load(self._source))
            self._fetched = self._clock()
        except (OSError, ValueError, RecursionError, http.client.HTTPException) as error:
            # The known keys stay in use for a while.
            location = self._source.url or self._source.file
            log.error("%s: the keys of an issuer cannot be read: %s", location, error)
        finally:
            self._fetching.release()


def _load(source: KeySource) -> bytes:
    """Return the published key set. Raises: OSError, HTTPException or ValueError."""
    if source.file is not None:
        return source.file.read_bytes()
    headers = {"Accept": "application/jwk-set+json, application/json", "User-Agent": "edl-builder"}
    if source.bearer_token_file:
        token = Path(source.bearer_token_file).read_text("ascii").strip()
        headers["Authorization"] = f"Bearer {token}"
    deadline = time.monotonic() + _DEADLINE_S
    url = urlsplit(source.url)
    # http.client uses no proxy and no .netrc of the user who started this process.
    with contextlib.closing(_connection(url, source.ca_file)) as connection:
        connection.request("GET", f"{url.path or '/'}?{url.query}".rstrip("?"), headers=headers)
        answer = http.client.HTTPResponse(
            cast(socket.socket, _TimedSocket(connection.sock, deadline))
        )
        answer.begin()
        # A redirect could lead to keys of another party.
        if answer.status != http.client.OK:
            raise ValueError(f"the answer is {answer.status}")
        found = answer.read(_MAX_BYTES + 1)
        if len(found) > _MAX_BYTES:
            raise ValueError("the answer is too long")
        return found


def _connection(url: SplitResult, ca_file: str) -> http.client.HTTPConnection:
    host = url.hostname or ""
    if url.scheme == "http":
        return http.client.HTTPConnection(host, url.port, timeout=_TIMEOUT_S)
    context = ssl.create_default_context(cafile=ca_file or None)
    return http.client.HTTPSConnection(host, url.port, timeout=_TIMEOUT_S, context=context)


class _TimedSocket(io.RawIOBase):
    """A socket with a deadline for all reads together: its own timeout is for each one.

    Args:
        connection: the connection to the server.
        deadline: the deadline by the clock of ``time.monotonic``.
    """

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return the file from which ``HTTPResponse`` reads."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(min(remaining(self._deadline), _TIMEOUT_S))
        return self._connection.recv_into(buffer)


def _parse(text: bytes) -> dict[str, jwt.PyJWK]:
    """Return the public keys of a JWK set, by id. Raises: ValueError: it has none."""
    listed = json.loads(text)
    if not isinstance(listed, dict) or not isinstance(listed.get("keys"), list):
        raise ValueError("the answer is not a set of keys")
    found: dict[str, jwt.PyJWK] = {}
    for each in listed["keys"]:
        key = _public_key(each)
        if key is not None and key.key_id:
            found.setdefault(key.key_id, key)
    if not found:
        raise ValueError("the set has no public key that can be used")
    return found


def _public_key(each: object) -> jwt.PyJWK | None:
    if not isinstance(each, dict) or each.get("kty") not in _KINDS:
        return None
    if each.get("use", "sig") != "sig" or not isinstance(each.get("kid"), str):
        return None
    public = {name: value for name, value in each.items() if name not in ("d", "k")}
    try:
        key = jwt.PyJWK(public)
    except (jwt.PyJWTError, ValueError, TypeError, NotImplementedError):
        return None
    if getattr(key.key, "key_size", _MIN_RSA_BITS) < _MIN_RSA_BITS and each["kty"] == "RSA":
        return None
    return key
