"""Registries of images, over the HTTP interface of the OCI distribution specification.

Needs the extra ``registry``.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urljoin, urlsplit

import requests
import urllib3

from edl_runtime.image_names import DOCKER_HUB, Repository, is_digest
from edl_runtime.json_texts import parse_object

MANIFEST_NBYTES = 8 << 20
"""Limit on the bytes of a manifest."""

ANSWER_S = 300.0
"""Limit on the time for an answer of that size."""

_PIECE_NBYTES = 64 << 10
_TOKEN_NBYTES = 1 << 20
_TIMEOUT_S = (5.0, 30.0)
_OK, _CREATED, _ACCEPTED, _UNAUTHORIZED, _MISSING = 200, 201, 202, 401, 404
_REDIRECTS = (301, 302, 303, 307, 308)
_KINDS = (
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.index.v1+json",
)
_FIELD = re.compile(r'([a-zA-Z]+)="([^"]*)"')
_TOKEN = re.compile(r"[!-~]{1,65536}")


class RegistryFault(StrEnum):
    """The kind of a registry's failure."""

    UNREACHABLE = "unreachable"
    UNTRUSTED = "untrusted"
    REFUSED = "refused"
    UNREADABLE = "unreadable"


class RegistryError(Exception):
    """The failure of a request to a registry; the text says what happened.

    Attributes:
        fault: what kind of failure it is.
        repository: which repository was asked for.
    """

    def __init__(self, fault: RegistryFault, what: str, repository: Repository) -> None:
        super().__init__(what)
        self.fault = fault
        self.repository = repository


@dataclass(frozen=True, slots=True)
class RegistryAccess:
    """The way in which a registry is reached.

    Attributes:
        plain_http: without TLS; for registries of this machine.
        ca_file: certificates to trust; empty: the machine's own.
    """

    username: str = ""
    password: str = ""
    plain_http: bool = False
    ca_file: str = ""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest as it is stored; ``digest`` is of these bytes."""

    content: bytes
    media_type: str
    digest: str


def digest_of(content: bytes) -> str:
    """Return the digest of a content, ``sha256:`` and 64 digits."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class RegistryClient:
    """Reads and writes manifests and blobs.

    Every method raises ``RegistryError``.

    Args:
        access: by ``host[:port]``; others are reached over TLS without a password.
    """

    def __init__(self, access: Mapping[str, RegistryAccess]) -> None:
        self._access = access

    def manifest(self, repository: Repository, reference: str) -> Manifest | None:
        """Return the manifest of a tag or digest, or None.

        Content that has another digest than was asked for, or than its header says, is an error.
        """
        answer = self._call("GET", repository, f"manifests/{reference}", accept=", ".join(_KINDS))
        if answer.status == _MISSING:
            return None
        _expect(answer, _OK, repository)
        digest = digest_of(answer.content)
        header = answer.headers.get("Docker-Content-Digest", "")
        if header not in ("", digest) or (is_digest(reference) and reference != digest):
            raise _unreadable(repository)
        return Manifest(answer.content, answer.headers.get("Content-Type", _KINDS[0]), digest)

    def put_manifest(
        self, repository: Repository, reference: str, content: bytes, media_type: str
    ) -> None:
        """Store a manifest under a tag or its digest."""
        answer = self._call(
            "PUT", repository, f"manifests/{reference}", content, content_type=media_type
        )
        _expect(answer, _CREATED, repository)

    def blob(self, repository: Repository, digest: str, most: int) -> bytes:
        """Return the blob of a digest, of at most ``most`` bytes."""
        if not is_digest(digest):
            raise _unreadable(repository)
        answer = self._call("GET", repository, f"blobs/{digest}", most=most)
        _expect(answer, _OK, repository)
        if digest_of(answer.content) != digest:
            raise _unreadable(repository)
        return answer.content

    def put_blob(self, repository: Repository, content: bytes) -> str:
        """Store a blob; returns its digest."""
        digest = digest_of(content)
        begun = self._call("POST", repository, "blobs/uploads/")
        _expect(begun, _ACCEPTED, repository)
        place = urljoin(begun.url, begun.headers.get("Location", ""))
        if urlsplit(place)[:2] != urlsplit(begun.url)[:2]:
            # The password is for the registry alone.
            raise _unreadable(repository)
        place += f"{'&' if urlsplit(place).query else '?'}digest={digest}"
        put = self._call("PUT", repository, place, content, content_type="application/octet-stream")
        _expect(put, _CREATED, repository)
        return digest

    def _call(
        self,
        method: str,
        repository: Repository,
        place: str,
        body: bytes | None = None,
        *,
        content_type: str = "",
        accept: str = "*/*",
        most: int = MANIFEST_NBYTES,
    ) -> _Answer:
        access = self._access.get(repository.registry, RegistryAccess())
        host = "registry-1.docker.io" if repository.registry == DOCKER_HUB else repository.registry
        base = f"{'http' if access.plain_http else 'https'}://{host}/v2/{repository.path}/"
        headers = {"Accept": accept}
        if content_type:
            headers["Content-Type"] = content_type
        try:
            with requests.Session() as session:
                # Neither proxy nor .netrc of the user who started this.
                session.trust_env = False
                session.verify = access.ca_file or os.environ.get("REQUESTS_CA_BUNDLE") or True

                def send(authorization: str = "") -> requests.Response:
                    with_it = {"Authorization": authorization} if authorization else {}
                    return session.request(
                        method,
                        urljoin(base, place),
                        headers=headers | with_it,
                        data=body,
                        timeout=_TIMEOUT_S,
                        allow_redirects=False,
                        stream=True,
                    )

                answer = send()
                if answer.status_code == _UNAUTHORIZED:
                    challenge = answer.headers.get("WWW-Authenticate", "")
                    authorized = _authorize(send, session, access, challenge, repository)
                    # Not `authorized or answer`: a response of 404 is false.
                    answer = answer if authorized is None else authorized
                if method == "GET" and answer.status_code in _REDIRECTS:
                    answer = _follow(session, answer, repository)
                return _read(answer, most, repository)
        except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
            untrusted = isinstance(error, requests.exceptions.SSLError)
            raise RegistryError(
                RegistryFault.UNTRUSTED if untrusted else RegistryFault.UNREACHABLE,
                f"the registry {repository.registry} cannot be reached: {type(error).__name__}",
                repository,
            ) from error


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: Mapping[str, str]
    content: bytes
    url: str


def _read(answer: requests.Response, most: int, repository: Repository) -> _Answer:
    """Read the whole answer, within limits of size and time that its sender cannot exceed."""
    content, end = bytearray(), time.monotonic() + ANSWER_S
    while piece := answer.raw.read1(_PIECE_NBYTES, decode_content=True):
        content += piece
        if len(content) > most:
            raise _unreadable(repository)
        if time.monotonic() > end:
            raise RegistryError(
                RegistryFault.UNREACHABLE,
                f"the registry {repository.registry} took too long for an answer",
                repository,
            )
    return _Answer(answer.status_code, answer.headers, bytes(content), answer.url)


def _follow(
    session: requests.Session, answer: requests.Response, repository: Repository
) -> requests.Response:
    """Follow a redirect to a store of blobs, which must not see the registry's password."""
    place = urljoin(answer.url, answer.headers.get("Location", ""))
    if urlsplit(place).scheme != "https" and urlsplit(place)[:2] != urlsplit(answer.url)[:2]:
        raise _unreadable(repository)
    return session.get(place, timeout=_TIMEOUT_S, allow_redirects=False, stream=True)


def _authorize(
    send: Callable[[str], requests.Response],
    session: requests.Session,
    access: RegistryAccess,
    challenge: str,
    repository: Repository,
) -> requests.Response | None:
    pair = (access.username, access.password) if access.username else None
    scheme, _, rest = challenge.partition(" ")
    if scheme.lower() == "basic" and pair is not None:
        text = f"{access.username}:{access.password}"
        return send(f"Basic {base64.b64encode(text.encode()).decode()}")
    if scheme.lower() != "bearer":
        return None
    fields = dict(_FIELD.findall(rest))
    realm = fields.pop("realm", "")
    # In the clear a password goes to the registry alone, and only where the operator allows it; nor
    # does a registry send its caller to what else answers there, such as a cloud's metadata.
    own = access.plain_http and urlsplit(realm)[:2] == ("http", repository.registry)
    if not realm.startswith("https://") and not own:
        return None
    answer = session.get(
        realm,
        params={k: v for k, v in fields.items() if k in ("service", "scope")},
        auth=pair,
        timeout=_TIMEOUT_S,
        allow_redirects=False,
        stream=True,
    )
    if answer.status_code != _OK:
        return None
    try:
        body = parse_object(_read(answer, _TOKEN_NBYTES, repository).content)
    except ValueError:
        raise _unreadable(repository) from None
    token = str(body.get("token") or body.get("access_token", ""))
    if not _TOKEN.fullmatch(token):
        raise _unreadable(repository)
    return send(f"Bearer {token}")


def _expect(answer: _Answer, status: int, repository: Repository) -> None:
    if answer.status != status:
        raise RegistryError(
            RegistryFault.REFUSED,
            f"the registry {repository.registry} answered {answer.status}",
            repository,
        )


def _unreadable(repository: Repository) -> RegistryError:
    return RegistryError(
        RegistryFault.UNREADABLE,
        f"the registry {repository.registry} sent an answer that cannot be read",
        repository,
    )
