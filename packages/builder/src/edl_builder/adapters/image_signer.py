"""Signs images and the statements about them with the operator's key, in their registries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edl_builder.adapters.registry import translated_errors
from edl_builder.core.references import Reference
from edl_registry.attachments import Attachments
from edl_registry.registry import RegistryAccess, RegistryClient
from edl_registry.signatures import SigningKey
from edl_runtime.image_names import Repository

BUILDER_ID = "urn:edl:builder"


@dataclass(frozen=True, slots=True)
class Signing:
    """The operator's configuration of signing.

    Attributes:
        key: signs what this builder has built.
        builder_id: names the builder in its statements, a URI.
    """

    key: SigningKey
    builder_id: str = BUILDER_ID


class ImageSigner:
    """Signs the images of a builder. Every method raises ``BuilderError``: REGISTRY."""

    def __init__(self, signing: Signing, access: Mapping[str, RegistryAccess]) -> None:
        self.builder_id = signing.builder_id
        self._key = signing.key
        self._attachments = Attachments(RegistryClient(access))

    def sign(self, image: Reference) -> None:
        """Sign an image, named by its digest, once."""
        with translated_errors():
            self._attachments.sign(_repository(image), image.digest, self._key)

    def attach(self, image: Reference, statement: Mapping[str, Any]) -> None:
        """Sign a statement about an image, once for each type of predicate."""
        with translated_errors():
            self._attachments.attach(_repository(image), image.digest, statement, self._key)


def _repository(image: Reference) -> Repository:
    return Repository(image.registry, image.path)
