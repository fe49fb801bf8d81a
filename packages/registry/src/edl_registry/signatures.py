"""Signatures of images and of statements about them, in the formats of cosign.

An image's signature is over a small JSON document that names the image's digest ("simple signing").
A statement (in-toto) is signed in an envelope (DSSE). Keys are EC keys on the curve P-256, in PEM.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

STATEMENT_TYPE = "application/vnd.in-toto+json"
PROVENANCE = "https://slsa.dev/provenance/v1"
"""The type of statements about how an image was made."""

_SIGNATURE_TYPE = "cosign container image signature"
_ALGORITHM = ec.ECDSA(hashes.SHA256())
_PUBLIC_KEY = re.compile(rb"-----BEGIN PUBLIC KEY-----.*?-----END PUBLIC KEY-----", re.DOTALL)

PublicKeys = Sequence[ec.EllipticCurvePublicKey]


class SigningKey:
    """A private key that signs images and statements.

    Args:
        pem: the key, PKCS #8 in PEM, without a password.

    Raises:
        ValueError: it is no such key; says why.
    """

    def __init__(self, pem: bytes) -> None:
        try:
            key = serialization.load_pem_private_key(pem, password=None)
        except (ValueError, TypeError) as error:
            raise ValueError("this is not a PEM private key without a password") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp256r1":
            raise ValueError("the key is not on the curve P-256")
        self._key = key

    @property
    def public(self) -> ec.EllipticCurvePublicKey:
        """The key that verifies what this one signs."""
        return self._key.public_key()

    def sign(self, content: bytes) -> bytes:
        """Return the signature of a content: ECDSA with SHA-256, in DER."""
        return self._key.sign(content, _ALGORITHM)

    def envelope(self, statement: Mapping[str, Any]) -> bytes:
        """Return an in-toto statement in a signed envelope, as JSON."""
        content = _canonical(statement)
        signature = self.sign(_pre_authentication_encoding(STATEMENT_TYPE, content))
        return _canonical(
            {
                "payloadType": STATEMENT_TYPE,
                "payload": _encode(content),
                "signatures": [{"keyid": "", "sig": _encode(signature)}],
            }
        )


def read_public_keys(pem: bytes) -> PublicKeys:
    """Read the public keys of a file in PEM, one or several in a row.

    Raises:
        ValueError: there is none, or one that is not on the curve P-256; says which.
    """
    found = []
    for block in _PUBLIC_KEY.findall(pem):
        try:
            key = serialization.load_pem_public_key(block)
        except ValueError as error:
            raise ValueError("a public key cannot be read") from error
        if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != "secp256r1":
            raise ValueError("a public key is not on the curve P-256")
        found.append(key)
    if not found:
        raise ValueError("there is no PEM public key")
    return found


def is_signed(content: bytes, signature: bytes, keys: PublicKeys) -> bool:
    """Tell whether one of the keys has made a signature of a content."""
    for key in keys:
        try:
            key.verify(signature, content, _ALGORITHM)
        except InvalidSignature:
            continue
        return True
    return False


def document(repository: str, digest: str) -> bytes:
    """Return the document about an image that is signed.

    Args:
        repository: where it was pushed to; for people, since images are copied.
        digest: of its manifest.
    """
    critical = {
        "identity": {"docker-reference": repository},
        "image": {"docker-manifest-digest": digest},
        "type": _SIGNATURE_TYPE,
    }
    return _canonical({"critical": critical, "optional": None})


def names_image(content: bytes, digest: str) -> bool:
    """Tell whether a signed document is about this image, and about nothing else."""
    try:
        critical = json.loads(content)["critical"]
        return bool(
            critical["type"] == _SIGNATURE_TYPE
            and critical["image"]["docker-manifest-digest"] == digest
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def statement_of(envelope: bytes, digest: str, keys: PublicKeys) -> Mapping[str, Any] | None:
    """Return the statement about an image in an envelope; None if no key has signed it.

    Args:
        envelope: DSSE, as JSON.
        digest: of the image that must be a subject of the statement.
    """
    try:
        fields = json.loads(envelope)
        content = decode_base64(fields["payload"])
        kind = str(fields["payloadType"])
        signed = _pre_authentication_encoding(kind, content)
        if kind != STATEMENT_TYPE or not any(
            is_signed(signed, decode_base64(each["sig"]), keys) for each in fields["signatures"]
        ):
            return None
        statement = json.loads(content)
        subjects = [f"sha256:{each['digest']['sha256']}" for each in statement["subject"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return statement if digest in subjects else None


def decode_base64(text: str) -> bytes:
    """Decode a text in base64. Raises: ValueError."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("no base64") from error


def _encode(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _pre_authentication_encoding(kind: str, content: bytes) -> bytes:
    """Return the bytes that are signed: the pre-authentication encoding of DSSE."""
    name = kind.encode()
    return b"DSSEv1 %d %s %d %s" % (len(name), name, len(content), content)


def _canonical(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()
