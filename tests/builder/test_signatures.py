"""Images are signed by the builder of an operator with a key, and checked before they are used."""

from __future__ import annotations

import base64
import json
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import zoos
from conftest import Edl

from edl_images import signatures as image_signatures
from edl_proto.errors import EdlError, ErrorCode
from edl_registry.attachments import Attachments
from edl_registry.registry import RegistryAccess, RegistryClient, digest_of
from edl_registry.signatures import PROVENANCE, SigningKey, read_public_keys
from edl_runtime.image_names import Repository

from .docker_environment import DockerEnvironment
from .service import build, serving
from .test_registries import PASSWORD, guarded_registry

MANIFEST = "application/vnd.oci.image.manifest.v1+json"


@dataclass(frozen=True)
class KeyPair:
    """Files in PEM, as an operator makes them with openssl."""

    private: Path
    public: Path

    @property
    def signing(self) -> SigningKey:
        return SigningKey(self.private.read_bytes())


def key_pair(folder: Path, name: str) -> KeyPair:
    found = KeyPair(folder / f"{name}.key", folder / f"{name}.pub")
    curve = ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")
    for command in (
        ("openssl", "genpkey", *curve, "-out", found.private),
        ("openssl", "pkey", "-in", found.private, "-pubout", "-out", found.public),
    ):
        subprocess.run(command, check=True, capture_output=True)
    found.private.chmod(0o600)
    return found


@dataclass(frozen=True)
class StoredImage:
    """An image in a registry with a password."""

    repository: Repository
    digest: str
    client: RegistryClient

    @property
    def name(self) -> str:
        return f"{self.repository}@{self.digest}"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with guarded_registry(tmp_path_factory.mktemp("registry"), tls=False) as found:
        yield found.host


@pytest.fixture
def image(registry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoredImage:
    """An image, and the login of a user who may read it."""
    login = base64.b64encode(f"builder:{PASSWORD}".encode()).decode()
    (tmp_path / "config.json").write_text(json.dumps({"auths": {registry: {"auth": login}}}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    client = RegistryClient({registry: RegistryAccess("builder", PASSWORD, plain_http=True)})
    repository = Repository(registry, f"zoos/{uuid.uuid4().hex}")
    config = client.put_blob(repository, b"{}")
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "size": 2,
            "digest": config,
        },
        "layers": [],
    }
    content = json.dumps(manifest).encode()
    client.put_manifest(repository, digest_of(content), content, MANIFEST)
    return StoredImage(repository, digest_of(content), client)


def refusal(image: StoredImage, key: KeyPair) -> EdlError:
    with pytest.raises(EdlError) as refused:
        image_signatures.check(image.name, str(key.public))
    return refused.value


def test_only_an_image_signed_with_the_key_is_used(image: StoredImage, tmp_path: Path) -> None:
    mine, other = key_pair(tmp_path, "mine"), key_pair(tmp_path, "other")
    attachments = Attachments(image.client)
    assert refusal(image, mine).code == ErrorCode.FORBIDDEN
    attachments.sign(image.repository, image.digest, other.signing)
    found = refusal(image, mine)
    assert found.code == ErrorCode.FORBIDDEN
    assert image.name in found.what
    attachments.sign(image.repository, image.digest, mine.signing)
    image_signatures.check(image.name, str(mine.public))
    image_signatures.check(image.name, str(other.public))  # the first signature is kept


def test_signing_again_changes_nothing(image: StoredImage, tmp_path: Path) -> None:
    key = key_pair(tmp_path, "mine").signing
    tag = f"{image.digest.replace(':', '-')}.sig"
    attachments = Attachments(image.client)
    attachments.sign(image.repository, image.digest, key)
    first = image.client.manifest(image.repository, tag)
    attachments.sign(image.repository, image.digest, key)
    assert first is not None
    assert image.client.manifest(image.repository, tag) == first


def test_what_others_put_beside_an_image_neither_counts_nor_hides_a_signature(
    image: StoredImage, tmp_path: Path
) -> None:
    """A caller who may push can store anything: first the signature of another image."""
    key = key_pair(tmp_path, "mine")
    attachments = Attachments(image.client)
    attachments.sign(image.repository, digest_of(b"another"), key.signing)
    tag, others = (
        f"{digest.replace(':', '-')}.sig" for digest in (image.digest, digest_of(b"another"))
    )
    copied = image.client.manifest(image.repository, others)
    assert copied is not None
    image.client.put_manifest(image.repository, tag, copied.content, MANIFEST)
    assert refusal(image, key).code == ErrorCode.FORBIDDEN
    manifest = json.loads(copied.content)
    manifest["layers"] = [
        {**manifest["layers"][0], "annotations": annotations}
        for annotations in ({}, {"dev.cosignproject.cosign/signature": "?"})
    ] * 60
    image.client.put_manifest(image.repository, tag, json.dumps(manifest).encode(), MANIFEST)
    assert refusal(image, key).code == ErrorCode.FORBIDDEN
    attachments.sign(image.repository, image.digest, key.signing)
    image_signatures.check(image.name, str(key.public))


def test_a_key_or_a_registry_that_cannot_be_read_is_not_taken_for_consent(
    image: StoredImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = key_pair(tmp_path, "mine")
    with pytest.raises(EdlError) as refused:
        image_signatures.check(image.name, str(tmp_path / "missing.pub"))
    assert refused.value.code == ErrorCode.USAGE
    with pytest.raises(EdlError) as refused:
        image_signatures.check(image.name, str(key.private))
    assert refused.value.code == ErrorCode.USAGE
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "missing"))  # not logged in
    assert refusal(image, key).code == ErrorCode.REGISTRY_UNAVAILABLE


def test_the_command_tells_who_has_signed_an_image_and_how_it_was_made(
    image: StoredImage, edl: Edl, tmp_path: Path
) -> None:
    key = key_pair(tmp_path, "mine")
    asked = ("zoo", "verify", image.name, "--image-public-key", str(key.public))
    edl.env["DOCKER_CONFIG"] = str(tmp_path)
    assert "has signed the image" in edl.run(*asked).err
    made = {
        "buildDefinition": {"resolvedDependencies": [{"uri": "docker://b", "digest": {"x": "1"}}]},
        "runDetails": {"builder": {"id": "https://b.example.com"}},
    }
    statement = {
        "subject": [{"name": "zoo", "digest": {"sha256": image.digest.removeprefix("sha256:")}}],
        "predicateType": PROVENANCE,
        "predicate": made,
    }
    attachments = Attachments(image.client)
    attachments.sign(image.repository, image.digest, key.signing)
    attachments.attach(image.repository, image.digest, statement, key.signing)
    assert edl(*asked, "-o", "json").json == {"image": image.name, "provenance": made}
    text = edl(*asked).out
    assert "https://b.example.com" in text
    assert "docker://b (x:1)" in text


def test_the_builder_signs_what_it_hands_out_and_says_how_it_was_made(
    docker_env: DockerEnvironment, edl: Edl, tmp_path: Path
) -> None:
    mine, other = key_pair(tmp_path, "mine"), key_pair(tmp_path, "other")
    settings = tmp_path / "builder.toml"
    settings.write_text(
        f'[signing]\nkey_file = "{mine.private}"\nbuilder_id = "https://b.example.com"\n'
    )
    repository = f"{docker_env.registry}/signed/{uuid.uuid4().hex[:8]}"
    early = zoos.tar({"m.py": "x = 1\n"})
    with serving(docker_env, tmp_path / "state") as service, service.caller() as stub:
        unsigned = build(stub, repository, early).last.result.image
    options = ("--config", str(settings))
    with serving(docker_env, tmp_path / "state", *options) as service, service.caller() as stub:
        new = build(stub, repository, zoos.tar({"m.py": "x = 2\n"}), tag="v1").last.result
        with pytest.raises(EdlError):
            image_signatures.check(unsigned, str(mine.public))
        again = build(stub, repository, early).last.result
        assert again.reused
        assert again.image == unsigned
    for image in (unsigned, new.image):
        image_signatures.check(image, str(mine.public))
        with pytest.raises(EdlError):
            image_signatures.check(image, str(other.public))
    place = Repository(docker_env.registry, repository.partition("/")[2])
    digest = new.image.partition("@")[2]
    access = {docker_env.registry: RegistryAccess(plain_http=True)}
    attachments = Attachments(RegistryClient(access))
    keys = read_public_keys(mine.public.read_bytes())
    (statement,) = attachments.statements(place, digest, PROVENANCE, keys)
    definition = statement["predicate"]["buildDefinition"]
    assert definition["externalParameters"]["tag"] == "v1"
    assert definition["internalParameters"]["key"] == new.key
    assert definition["resolvedDependencies"][0]["uri"].startswith(
        f"docker://{docker_env.registry}"
    )
    assert statement["predicate"]["runDetails"]["builder"] == {"id": "https://b.example.com"}
    foreign = read_public_keys(other.public.read_bytes())
    assert not list(attachments.statements(place, digest, PROVENANCE, foreign))
    _refuses_an_image_of_others(edl, docker_env, new.image, other, tmp_path)


def _refuses_an_image_of_others(
    edl: Edl, docker_env: DockerEnvironment, image: str, key: KeyPair, folder: Path
) -> None:
    edl("zoo", "init", str(folder / "zoo"))
    (folder / "results").mkdir()
    done = edl.run(
        *("train", "--platform", "docker", "--engine", docker_env.engine),
        *("--model-zoo", str(folder / "zoo"), "--model-def", "circle", "--image", image),
        *(
            "--data",
            str(folder / "zoo/data/train.recordio"),
            "--output",
            str(folder / "results/out"),
        ),
        *("--image-public-key", str(key.public)),
    )
    assert done.code != 0
    assert "has signed the image" in done.err
    assert "--image-public-key" in done.err
    assert not (edl.home / "jobs").exists() or not any((edl.home / "jobs").iterdir())
