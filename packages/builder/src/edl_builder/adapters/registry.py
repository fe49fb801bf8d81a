"""Registries, over their HTTP interface: look-up by tag, and one more tag for an image."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import requests

from edl_builder.core.names import BuilderError, Reason
from edl_builder.core.ports import RegistryImage
from edl_builder.core.references import DOCKER_HUB, Reference

_TIMEOUT_S = (5.0, 30.0)
_LARGEST = 8 << 20
_OK, _CREATED, _UNAUTHORIZED, _MISSING = 200, 201, 401, 404
_KINDS = (
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.index.v1+json",
)
_FIELD = re.compile(r'([a-zA-Z]+)="([^"]*)"')
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class RegistryAccess:
    """How a registry is reached.

    Attributes:
        plain_http: without TLS; for registries of this machine.
        ca_file: certificates to trust; empty: the machine's own.
    """

    username: str = ""
    password: str = ""
    plain_http: bool = False
    ca_file: str = ""


class HttpRegistry:
    """All registries that a builder reads from and pushes to.

    Args:
        access: by ``host[:port]``; others are reached over TLS without a password.
    """

    def __init__(self, access: Mapping[str, RegistryAccess]) -> None:
        self._access = access

    def find(self, name: Reference) -> RegistryImage | None:
        """The image of that name; None if there is none. Raises: BuilderError: REGISTRY."""
        answer = self._manifest("GET", name, name.digest or name.tag or "latest")
        if answer.status_code == _MISSING:
            return None
        if answer.status_code != _OK:
            raise _refusal(name, answer.status_code)
        digest = answer.headers.get("Docker-Content-Digest", "")
        computed = f"sha256:{hashlib.sha256(answer.content).hexdigest()}"
        if not _DIGEST.fullmatch(digest) or (name.digest and computed != name.digest):
            raise _unreadable(name)
        try:
            manifest = answer.json()
            parts = [*manifest.get("layers", ()), manifest.get("config", {})]
            nbytes = sum(int(part.get("size", 0)) for part in parts)
        except (ValueError, TypeError, AttributeError):
            raise _unreadable(name) from None
        return RegistryImage(digest, nbytes)

    def tag(self, name: Reference, tag: str) -> None:
        """Give an image another tag. Raises: BuilderError: REGISTRY."""
        answer = self._manifest("GET", name, name.digest or name.tag)
        if answer.status_code != _OK:
            raise _refusal(name, answer.status_code)
        put = self._manifest(
            "PUT", name, tag, answer.content, answer.headers.get("Content-Type", _KINDS[0])
        )
        if put.status_code != _CREATED:
            raise _refusal(name, put.status_code)

    def _manifest(
        self, method: str, name: Reference, what: str, body: bytes | None = None, kind: str = ""
    ) -> requests.Response:
        access = self._access.get(name.registry, RegistryAccess())
        host = "registry-1.docker.io" if name.registry == DOCKER_HUB else name.registry
        url = f"{'http' if access.plain_http else 'https'}://{host}/v2/{name.path}/manifests/{what}"
        headers = {"Accept": ", ".join(_KINDS)}
        if kind:
            headers["Content-Type"] = kind
        try:
            with requests.Session() as session:
                # Neither proxy nor .netrc of the user who started the service.
                session.trust_env = False
                session.verify = access.ca_file or _machine_ca()

                def send(authorization: str = "") -> requests.Response:
                    with_it = {"Authorization": authorization} if authorization else {}
                    return session.request(
                        method,
                        url,
                        headers=headers | with_it,
                        data=body,
                        timeout=_TIMEOUT_S,
                        allow_redirects=False,
                    )

                answer = send()
                if answer.status_code == _UNAUTHORIZED:
                    challenge = answer.headers.get("WWW-Authenticate", "")
                    authorized = self._authorized(send, session, access, challenge)
                    # Not `authorized or answer`: a response of 404 is false.
                    answer = answer if authorized is None else authorized
                if len(answer.content) > _LARGEST:
                    raise _unreadable(name)
                return answer
        except requests.RequestException as error:
            raise BuilderError(
                Reason.REGISTRY,
                f"the registry {name.registry} cannot be reached: {type(error).__name__}",
                where=name.repository,
                remedy=_remedy(name.registry, error),
            ) from error

    def _authorized(
        self,
        send: Callable[[str], requests.Response],
        session: requests.Session,
        access: RegistryAccess,
        challenge: str,
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
        # A password goes nowhere in the clear that the operator did not allow it.
        if not realm.startswith("https://") and not access.plain_http:
            return None
        answer = session.get(
            realm,
            params={k: v for k, v in fields.items() if k in ("service", "scope")},
            auth=pair,
            timeout=_TIMEOUT_S,
            allow_redirects=False,
        )
        if answer.status_code != _OK:
            return None
        token = answer.json()
        return send(f"Bearer {token.get('token') or token.get('access_token', '')}")


def _machine_ca() -> str | bool:
    return os.environ.get("REQUESTS_CA_BUNDLE") or True


def _remedy(host: str, error: requests.RequestException) -> str:
    if isinstance(error, requests.exceptions.SSLError):
        return (
            "See whether the builder trusts its certificate (ca_file); a registry without TLS is"
            f" allowed with the builder's --plain-http {host}."
        )
    return "See whether it is up, and whether the builder's machine can reach it."


def _refusal(name: Reference, status: int) -> BuilderError:
    return BuilderError(
        Reason.REGISTRY,
        f"the registry {name.registry} answered {status}",
        where=name.repository,
        remedy="Check the name, and the builder's credential for this registry.",
    )


def _unreadable(name: Reference) -> BuilderError:
    return BuilderError(
        Reason.REGISTRY,
        f"the registry {name.registry} gave an answer that cannot be read",
        where=name.repository,
        remedy="See whether it speaks version 2 of the registry's interface.",
    )
