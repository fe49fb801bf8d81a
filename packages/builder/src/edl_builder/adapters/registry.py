"""The adapter for registries: finds images and adds tags to them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from edl_builder.core.failure import BuilderError, Reason
from edl_builder.core.ports import RegistryImage
from edl_builder.core.references import Reference
from edl_registry.registry import (
    RegistryAccess,
    RegistryClient,
    RegistryError,
    RegistryFault,
)
from edl_runtime.image_names import Repository
from edl_runtime.json_texts import parse_object

_CREDENTIAL = "Check the name, and the builder's credential for this registry."


class HttpRegistry:
    """All registries that a builder reads from and pushes to.

    Args:
        access: by ``host[:port]``; others are reached over TLS without a password.
    """

    def __init__(self, access: Mapping[str, RegistryAccess]) -> None:
        self._client = RegistryClient(access)

    def find(self, name: Reference) -> RegistryImage | None:
        """Return the image of that name, or None. Raises: BuilderError: REGISTRY."""
        place = Repository(name.registry, name.path)
        with translated_errors():
            found = self._client.manifest(place, name.digest or name.tag or "latest")
            if found is None:
                return None
            try:
                manifest = parse_object(found.content)
                parts = [*manifest.get("layers", ()), manifest.get("config", {})]
                nbytes = sum(int(part.get("size", 0)) for part in parts)
                if not 0 <= nbytes < 1 << 63:
                    raise ValueError
            except (ValueError, TypeError, AttributeError, OverflowError):
                raise RegistryError(
                    RegistryFault.UNREADABLE,
                    f"the registry {name.registry} gave a manifest that cannot be read",
                    place,
                ) from None
        return RegistryImage(found.digest, nbytes)

    def tag(self, name: Reference, tag: str) -> None:
        """Give an image another tag. Raises: BuilderError: REGISTRY."""
        place = Repository(name.registry, name.path)
        with translated_errors():
            found = self._client.manifest(place, name.digest or name.tag)
            if found is None:
                raise RegistryError(
                    RegistryFault.REFUSED, f"the registry {name.registry} answered 404", place
                )
            self._client.put_manifest(place, tag, found.content, found.media_type)


@contextlib.contextmanager
def translated_errors() -> Iterator[None]:
    """Translate errors of registries into BuilderErrors within a context."""
    try:
        yield
    except RegistryError as error:
        registry = error.repository.registry
        remedy = {
            RegistryFault.UNREACHABLE: "Check that it is up, and that the builder's machine can"
            " reach it.",
            RegistryFault.UNTRUSTED: "Check that the builder trusts its certificate (ca_file); a"
            f" registry without TLS is allowed with the builder's --plain-http {registry}.",
            RegistryFault.REFUSED: _CREDENTIAL,
            RegistryFault.UNREADABLE: "Check that it supports version 2 of the registry API.",
        }[error.fault]
        raise BuilderError(
            Reason.REGISTRY, str(error), where=str(error.repository), remedy=remedy
        ) from error
