"""Public keys of an issuer of identity tokens, from a file or over HTTP."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import jwt
import requests

log = logging.getLogger(__name__)

_TIMEOUT_S = 5.0
"""For a connection, and for each piece of an answer."""

_DEADLINE_S = 15.0
_LARGEST = 1 << 20
_CHUNK = 64 << 10
_PAUSE_S = 30.0
"""Between two fetches, whatever callers send: an unknown key id costs an attacker nothing."""

_FRESH_S = 3600.0
"""After this the keys are fetched anew, so that those that the issuer withdraws end."""

_TRUSTED_S = 86400.0
"""After this the keys count no more if the issuer cannot be asked."""

_LEAST_RSA_BITS = 2048
_KINDS = ("RSA", "EC", "OKP")
"""Of public keys. ``oct`` is a shared secret: who may verify with it may also sign."""


class KeysUnavailable(Exception):
    """The issuer cannot be asked now, or is being asked by another call."""


@dataclass(frozen=True, slots=True)
class KeySource:
    """Where the keys of an issuer (a JWK set, RFC 7517) are.

    Attributes:
        url: over https, or over http on loopback; empty if there is a file.
        file: a file that is read again as often as a URL would be; None if there is a URL.
        ca_file: certificates to trust; empty: the machine's own.
        bearer_token_file: sent to the URL; Kubernetes asks for one. Read at each fetch.
    """

    url: str = ""
    file: Path | None = None
    ca_file: str = ""
    bearer_token_file: str = ""


class IssuerKeys(Protocol):
    """Finds public keys of one issuer."""

    def find(self, key_id: str) -> jwt.PyJWK | None:
        """A key by its id. Raises: KeysUnavailable."""
        ...


class CachedIssuerKeys:
    """The keys of an issuer, kept in memory. Safe for threads.

    No call waits for a fetch that another call makes: an issuer that is slow, and callers that send
    unknown key ids, would hold all threads of the service.

    Args:
        source: where the keys are.
        clock: seconds that only grow.
    """

    def __init__(self, source: KeySource, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._fetching = threading.Lock()
        self._keys: Mapping[str, jwt.PyJWK] = {}
        self._fetched = float("-inf")
        self._next = float("-inf")

    def find(self, key_id: str) -> jwt.PyJWK | None:
        """A key by its id; asks the issuer if it is unknown, or if the keys are old.

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
        except (OSError, ValueError, requests.RequestException) as error:
            # The known keys stay in use for a while.
            place = self._source.url or self._source.file
            log.error("%s: the keys of an issuer cannot be read: %s", place, error)
        finally:
            self._fetching.release()


def _load(source: KeySource) -> bytes:
    if source.file is not None:
        return source.file.read_bytes()
    headers = {"Accept": "application/jwk-set+json, application/json"}
    if source.bearer_token_file:
        token = Path(source.bearer_token_file).read_text("ascii").strip()
        headers["Authorization"] = f"Bearer {token}"
    deadline = time.monotonic() + _DEADLINE_S
    with requests.get(
        source.url,
        headers=headers,
        timeout=_TIMEOUT_S,
        verify=source.ca_file or True,
        # A redirect could lead to keys of somebody else.
        allow_redirects=False,
        stream=True,
    ) as answer:
        if answer.status_code != requests.codes.ok:
            raise ValueError(f"the answer is {answer.status_code}")
        found = b""
        for chunk in answer.iter_content(_CHUNK):
            found += chunk
            if len(found) > _LARGEST or time.monotonic() > deadline:
                raise ValueError("the answer is too long, or too slow")
        return found


def _parse(text: bytes) -> dict[str, jwt.PyJWK]:
    """The public keys of a JWK set, by id. Raises: ValueError: it is none, or has no key."""
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
    if getattr(key.key, "key_size", _LEAST_RSA_BITS) < _LEAST_RSA_BITS and each["kty"] == "RSA":
        return None
    return key
