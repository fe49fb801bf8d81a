"""Signatures and statements next to an image in its registry, where cosign looks for them.

For an image ``sha256:X`` of a repository, the tag ``sha256-X.sig`` has the signatures, and
``sha256-X.att`` the statements: each is a layer of one manifest. Anyone who may push can put
anything there, so nothing counts without a signature of a known key.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any

from edl_registry import signatures
from edl_registry.registry import RegistryClient, RegistryError, RegistryFault
from edl_registry.signatures import PublicKeys, SigningKey
from edl_runtime.image_names import Repository

_SIGNATURES, _STATEMENTS = "sig", "att"
_DOCUMENT_TYPE = "application/vnd.dev.cosign.simplesigning.v1+json"
_ENVELOPE_TYPE = "application/vnd.dsse.envelope.v1+json"
_MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
_CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
_SIGNATURE = "dev.cosignproject.cosign/signature"
_PREDICATE = "predicateType"
_MAX_LAYERS = 64
"""Limit on the layers of an attachment that are read."""

_NBYTES = 1 << 20
"""Limit on the bytes of a document or statement."""

Layer = Mapping[str, Any]


class Attachments:
    """The signatures and signed statements of images in registries.

    Every method raises ``RegistryError``.
    """

    def __init__(self, client: RegistryClient) -> None:
        self._client = client

    def is_signed(self, repository: Repository, digest: str, keys: PublicKeys) -> bool:
        """Tell whether an image has a signature of one of the keys."""
        for layer in _layers(self._manifest(repository, digest, _SIGNATURES), _DOCUMENT_TYPE):
            try:
                signature = signatures.decode_base64(layer["annotations"][_SIGNATURE])
            except (ValueError, KeyError, TypeError):
                continue
            content = self._content(repository, layer)
            signed = signatures.is_signed(content, signature, keys)
            if signed and signatures.names_image(content, digest):
                return True
        return False

    def statements(
        self, repository: Repository, digest: str, kind: str, keys: PublicKeys
    ) -> Iterator[Mapping[str, Any]]:
        """Return the statements about an image that one of the keys has signed.

        Args:
            kind: the type of their predicates, a URI.
        """
        for layer in _layers(self._manifest(repository, digest, _STATEMENTS), _ENVELOPE_TYPE):
            found = signatures.statement_of(self._content(repository, layer), digest, keys)
            if found is not None and found.get("predicateType") == kind:
                yield found

    def sign(self, repository: Repository, digest: str, key: SigningKey) -> None:
        """Sign an image once, next to other signatures."""
        if self.is_signed(repository, digest, [key.public]):
            return
        content = signatures.document(str(repository), digest)
        signature = base64.b64encode(key.sign(content)).decode()
        note = {_SIGNATURE: signature}
        self._attach(repository, digest, _SIGNATURES, content, _DOCUMENT_TYPE, note)

    def attach(
        self, repository: Repository, digest: str, statement: Mapping[str, Any], key: SigningKey
    ) -> None:
        """Sign a statement about an image, once for each type of predicate, next to others."""
        kind = str(statement["predicateType"])
        if any(self.statements(repository, digest, kind, [key.public])):
            return
        # cosign wants the annotation, and the signature in the envelope.
        note = {_SIGNATURE: "", _PREDICATE: kind}
        content = key.envelope(statement)
        self._attach(repository, digest, _STATEMENTS, content, _ENVELOPE_TYPE, note)

    def _content(self, repository: Repository, layer: Layer) -> bytes:
        """Return the content of a layer; empty if the registry has none of this name and size."""
        try:
            return self._client.blob(repository, layer["digest"], _NBYTES)
        except RegistryError as error:
            if error.fault in (RegistryFault.REFUSED, RegistryFault.UNREADABLE):
                return b""
            raise

    def _attach(
        self,
        repository: Repository,
        digest: str,
        what: str,
        content: bytes,
        media_type: str,
        annotations: Mapping[str, str],
    ) -> None:
        there = self._manifest(repository, digest, what)
        own = {
            "mediaType": media_type,
            "size": len(content),
            "digest": self._client.put_blob(repository, content),
            "annotations": dict(annotations),
        }
        # The newest first, so that no number of others keeps it from being found.
        layers = [own, *(there or {}).get("layers", ())][:_MAX_LAYERS]
        config = _config(layers)
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST_TYPE,
            "config": {
                "mediaType": _CONFIG_TYPE,
                "size": len(config),
                "digest": self._client.put_blob(repository, config),
            },
            "layers": layers,
        }
        self._client.put_manifest(
            repository, _tag(digest, what), json.dumps(manifest).encode(), _MANIFEST_TYPE
        )

    def _manifest(self, repository: Repository, digest: str, what: str) -> Mapping[str, Any] | None:
        found = self._client.manifest(repository, _tag(digest, what))
        if found is None:
            return None
        try:
            manifest = json.loads(found.content)
            if all(isinstance(each["digest"], str) for each in manifest["layers"]):
                return dict(manifest)
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        raise RegistryError(
            RegistryFault.UNREADABLE,
            f"the registry {repository.registry} has signatures of {digest} that cannot be read",
            repository,
        )


def _layers(manifest: Mapping[str, Any] | None, media_type: str) -> list[Layer]:
    layers: list[Layer] = (manifest or {}).get("layers", [])[:_MAX_LAYERS]
    return [each for each in layers if each.get("mediaType") == media_type]


def _config(layers: list[Layer]) -> bytes:
    """Return an image configuration without content, which registries require."""
    config = {
        "architecture": "",
        "os": "",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [each["digest"] for each in layers]},
    }
    return json.dumps(config).encode()


def _tag(digest: str, what: str) -> str:
    return f"{digest.replace(':', '-')}.{what}"
