"""Checks who has signed an image, before anything of it is pulled or run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from edl.plugins.files import read_input
from edl_proto.errors import EdlError, ErrorCode
from edl_registry.attachments import Attachments
from edl_registry.registry import RegistryAccess, RegistryClient, RegistryError
from edl_registry.signatures import PROVENANCE, PublicKeys, read_public_keys
from edl_runtime.image_names import is_on_this_machine, repository_of

_FLAG = "--image-public-key"


def check(image: str, key_file: str) -> None:
    """Check that one of the keys of a file has signed an image.

    Args:
        image: ``repository@sha256:...``.
        key_file: public keys in PEM.

    Raises:
        EdlError: FORBIDDEN, if none has; USAGE, if the file has no keys; or REGISTRY_UNAVAILABLE,
            if the registry does not tell.
    """
    keys = _read(key_file)
    repository, digest = repository_of(image), image.partition("@")[2]
    with _attachments(image) as attachments:
        if attachments.is_signed(repository, digest, keys):
            return
    raise EdlError(
        ErrorCode.FORBIDDEN,
        f"no key of {key_file} has signed the image {image}",
        where=_FLAG,
        remedy="Use an image of a builder that signs with this key, or sign this one if you trust"
        f" it: cosign sign --key PRIVATE_KEY {image}",
    )


def provenance(image: str, key_file: str) -> Mapping[str, Any] | None:
    """Return the statement of how an image was made, signed by a file's key; None without one.

    Raises:
        EdlError: as ``check``.
    """
    keys = _read(key_file)
    digest = image.partition("@")[2]
    with _attachments(image) as attachments:
        return next(attachments.statements(repository_of(image), digest, PROVENANCE, keys), None)


@contextlib.contextmanager
def _attachments(image: str) -> Iterator[Attachments]:
    """What is signed about an image; in the context, errors of its registry become EdlErrors."""
    registry = repository_of(image).registry
    try:
        yield Attachments(RegistryClient({registry: _access(registry)}))
    except RegistryError as error:
        raise EdlError(
            ErrorCode.REGISTRY_UNAVAILABLE,
            f"the signatures of the image cannot be read: {error}",
            where=image,
            remedy="Check that the registry is available; docker login stores your credentials, and"
            " REQUESTS_CA_BUNDLE names the certificates that authenticate it.",
        ) from None


def _read(key_file: str) -> PublicKeys:

    try:
        return read_public_keys(read_input(Path(key_file)))
    except (OSError, ValueError) as error:
        raise EdlError(
            ErrorCode.USAGE,
            f"the public key cannot be read: {getattr(error, 'strerror', None) or error}",
            where=f"{_FLAG} {key_file}",
            remedy="openssl pkey -in signing.key -pubout -out signing.pub writes one;"
            " cosign.pub is one as well.",
        ) from None


def _access(registry: str) -> RegistryAccess:
    """Return the user's own access to a registry: that of ``docker login``."""
    stored = _login(registry)
    return RegistryAccess(
        stored.get("username") or stored.get("Username") or "",
        stored.get("password") or stored.get("Password") or "",
        plain_http=is_on_this_machine(registry),
    )


def _login(registry: str) -> Mapping[str, str]:
    """Return what ``docker login`` has stored; nothing without the package docker."""
    try:
        from docker import auth, errors
    except ImportError:
        return {}
    try:
        return auth.load_config().resolve_authconfig(registry) or {}
    except errors.DockerException as error:
        raise EdlError(
            ErrorCode.REGISTRY_UNAVAILABLE,
            f"the credentials of docker login cannot be read: {error}",
            where=registry,
            remedy="docker login stores them again.",
        ) from None
