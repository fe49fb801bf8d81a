"""Signatures of images and of statements about them: who has signed what."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from edl_registry import signatures
from edl_registry.signatures import SigningKey, read_public_keys

DIGEST = "sha256:" + "a" * 64
OTHER = "sha256:" + "b" * 64
STATEMENT = {
    "_type": "https://in-toto.io/Statement/v1",
    "subject": [{"name": "r.example.com/zoo", "digest": {"sha256": "a" * 64}}],
    "predicateType": "https://slsa.dev/provenance/v1",
    "predicate": {},
}


def private_pem(key: Any = None) -> bytes:
    made = key or ec.generate_private_key(ec.SECP256R1())
    return made.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def public_pem(key: Any) -> bytes:
    return key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def test_a_document_counts_for_its_image_and_its_signer_alone() -> None:
    mine, other = SigningKey(private_pem()), SigningKey(private_pem())
    content = signatures.document("r.example.com/zoo", DIGEST)
    signature = mine.sign(content)
    assert signatures.is_signed(content, signature, [other.public, mine.public])
    assert not signatures.is_signed(content, signature, [other.public])
    assert not signatures.is_signed(content + b" ", signature, [mine.public])
    assert not signatures.is_signed(content, signature[:-1], [mine.public])
    assert not signatures.is_signed(content, b"", [mine.public])
    assert signatures.names_image(content, DIGEST)
    assert not signatures.names_image(content, OTHER)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"null",
        b'{"critical": null}',
        b"\xff",
        b"[" * 100_000,
        b'{"critical": {"type": "cosign container image signature", "image": []}}',
        json.dumps(
            {"critical": {"type": "atomic", "image": {"docker-manifest-digest": DIGEST}}}
        ).encode(),
    ],
)
def test_other_documents_name_no_image(content: bytes) -> None:
    assert not signatures.names_image(content, DIGEST)


def test_a_statement_counts_for_its_subject_and_its_signer_alone() -> None:
    mine, other = SigningKey(private_pem()), SigningKey(private_pem())
    envelope = mine.envelope(STATEMENT)
    assert signatures.statement_of(envelope, DIGEST, [other.public, mine.public]) == STATEMENT
    assert signatures.statement_of(envelope, OTHER, [mine.public]) is None
    assert signatures.statement_of(envelope, DIGEST, [other.public]) is None


@pytest.mark.parametrize(
    "change",
    [
        {"payload": base64.b64encode(json.dumps({**STATEMENT, "predicate": 1}).encode()).decode()},
        {"payloadType": "text/plain"},
        {"payload": "no base64"},
        {"signatures": []},
        {"signatures": [{"sig": ""}]},
        {"signatures": 1},
        {"signatures": ["x"]},
    ],
)
def test_a_changed_envelope_states_nothing(change: dict[str, Any]) -> None:
    key = SigningKey(private_pem())
    envelope = json.dumps({**json.loads(key.envelope(STATEMENT)), **change}).encode()
    assert signatures.statement_of(envelope, DIGEST, [key.public]) is None


def test_only_keys_on_the_curve_of_cosign_are_taken() -> None:
    first, second = SigningKey(private_pem()).public, SigningKey(private_pem()).public
    both = read_public_keys(b"comment\n" + public_pem(first) + public_pem(second))
    assert [public_pem(each) for each in both] == [public_pem(first), public_pem(second)]
    for wrong in (ec.generate_private_key(ec.SECP384R1()), ed25519.Ed25519PrivateKey.generate()):
        with pytest.raises(ValueError, match="P-256"):
            SigningKey(private_pem(wrong))
        with pytest.raises(ValueError, match="P-256"):
            read_public_keys(public_pem(first) + public_pem(wrong.public_key()))
    with pytest.raises(ValueError, match="no PEM public key"):
        read_public_keys(private_pem())
    with pytest.raises(ValueError, match="not a PEM private key"):
        SigningKey(public_pem(first))


def test_what_cosign_has_signed_is_understood() -> None:
    """The real cosign's: ``sign``, and ``attest --type slsaprovenance1``, with a key."""
    made = json.loads((Path(__file__).parent / "data" / "cosign.json").read_text())
    keys = read_public_keys(made["public_key"].encode())
    foreign = [SigningKey(private_pem()).public]
    layer, content = made["signature"]["layer"], made["signature"]["content"].encode()
    signature = signatures.decode_base64(layer["annotations"]["dev.cosignproject.cosign/signature"])
    assert signatures.is_signed(content, signature, keys)
    assert not signatures.is_signed(content, signature, foreign)
    assert signatures.names_image(content, made["digest"])
    repository = json.loads(content)["critical"]["identity"]["docker-reference"]
    assert signatures.document(repository, made["digest"]) == content  # to the byte
    envelope = made["statement"]["content"].encode()
    statement = signatures.statement_of(envelope, made["digest"], keys)
    assert statement is not None
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    assert signatures.statement_of(envelope, made["digest"], foreign) is None
