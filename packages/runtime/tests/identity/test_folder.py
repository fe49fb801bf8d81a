"""The files of a job's identities: who may read them, and for how long they are valid."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from edl_proto.errors import EdlError, ErrorCode
from edl_proto.identity.credentials import Credentials
from edl_proto.identity.names import Role
from edl_runtime.identity.folder import IdentityFolder

WORKER = (Role.WORKER, 3)


@pytest.fixture
def folder(tmp_path: Path) -> IdentityFolder:
    folder = IdentityFolder(tmp_path / "identity", "w")
    assert not folder.exists
    folder.create([(Role.MASTER, None), (Role.CLIENT, None), WORKER])
    assert folder.exists
    return folder


def test_no_other_user_can_read_anything(folder: IdentityFolder, tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        folder.provide(Role.VIEWER)
    finally:
        os.umask(mask)
    found = [tmp_path / "identity", *(tmp_path / "identity").rglob("*")]
    assert len(found) == 10
    for path in found:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_a_certificate_says_who_and_for_what(folder: IdentityFolder) -> None:
    usages = {}
    for role, number in ((Role.MASTER, None), (Role.SERVER, 1), WORKER, (Role.CLIENT, None)):
        content = folder.provide(role, number).read_bytes()
        certificate = x509.load_pem_x509_certificate(content)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        path = role.value if number is None else f"{role}/{number}"
        assert names.get_values_for_type(x509.UniformResourceIdentifier) == [f"edl://job/w/{path}"]
        assert len(certificate.subject) == 0
        usages[role] = set(
            certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        )
    serves, calls = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
    assert usages == {
        Role.MASTER: {serves},
        Role.SERVER: {serves, calls},
        Role.WORKER: {serves, calls},  # to the other workers of a ring
        Role.CLIENT: {calls},
    }


@pytest.mark.parametrize("years", [-10, 10])
def test_no_clock_ends_a_certificate(folder: IdentityFolder, years: int) -> None:
    """Neither that of a process, nor that of the authority."""
    moment = datetime.now(UTC) + timedelta(days=365.25 * years)
    for certificate in x509.load_pem_x509_certificates(folder.file(*WORKER).read_bytes()):
        assert certificate.not_valid_before_utc < moment < certificate.not_valid_after_utc


def sign_for_a_day(path: Path, authority: Path) -> None:
    """Sign an identity for a day, as earlier versions of edl did."""
    pem = authority.read_bytes()
    key = serialization.load_pem_private_key(pem, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    former = x509.load_pem_x509_certificate(path.read_bytes())
    own = serialization.load_pem_private_key(path.read_bytes(), None)
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(former.issuer, former.subject, former.public_key(), 7)
    for extension in former.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    signed = builder.not_valid_before(now).not_valid_after(now + timedelta(days=1))
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    path.write_bytes(
        own.private_bytes(*form, serialization.NoEncryption())
        + signed.sign(key, hashes.SHA256()).public_bytes(form[0])
        + x509.load_pem_x509_certificate(pem).public_bytes(form[0])
    )


def test_what_an_earlier_version_signed_for_a_day_is_signed_again(
    folder: IdentityFolder, tmp_path: Path
) -> None:
    old, new = folder.file(*WORKER), folder.file(Role.MASTER)
    sign_for_a_day(old, tmp_path / "identity" / "authority.pem")
    before = Credentials(old), Credentials(new)
    folder.renew()
    after = Credentials(old), Credentials(new)
    assert after[1].certificate == before[1].certificate
    assert after[0].certificate != before[0].certificate
    assert (after[0].key, after[0].authority) == (before[0].key, before[0].authority)


def test_a_process_that_starts_gets_a_certificate_without_an_end(
    folder: IdentityFolder, tmp_path: Path
) -> None:
    path = folder.file(*WORKER)
    before = path.read_bytes()
    assert folder.provide(*WORKER) == path
    assert path.read_bytes() == before
    sign_for_a_day(path, tmp_path / "identity" / "authority.pem")
    folder.provide(*WORKER)
    assert x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc.year == 9999


@pytest.mark.parametrize("harm", ["readable", "cut", "gone"])
def test_a_file_that_cannot_be_used_is_refused_with_its_name(
    folder: IdentityFolder, harm: str
) -> None:
    path = folder.file(*WORKER)
    match harm:
        case "readable":
            path.chmod(0o604)
        case "cut":
            path.write_bytes(path.read_bytes()[:-40])
        case "gone":
            path.unlink()
    with pytest.raises(EdlError) as caught:
        Credentials(path)
    assert (caught.value.code, caught.value.where) == (ErrorCode.FORBIDDEN, str(path))


def test_a_folder_that_cannot_sign_says_so(folder: IdentityFolder, tmp_path: Path) -> None:
    (tmp_path / "identity" / "authority.pem").write_bytes(b"nothing")
    with pytest.raises(EdlError) as caught:
        folder.provide(Role.WORKER, 4)
    assert caught.value.code == ErrorCode.SYSTEM


def test_an_authority_that_was_made_elsewhere_signs_here(
    folder: IdentityFolder, tmp_path: Path
) -> None:
    authority = (tmp_path / "identity" / "authority.pem").read_bytes()
    other = IdentityFolder(tmp_path / "other", "w")
    other.install(authority)
    assert (tmp_path / "other" / "authority.pem").stat().st_mode & 0o777 == 0o600
    here, there = (Credentials(each.provide(Role.MASTER)) for each in (folder, other))
    assert (here.authority, here.key != there.key) == (there.authority, True)
    damaged = IdentityFolder(tmp_path / "damaged", "w")
    damaged.install(authority[:-60])
    with pytest.raises(EdlError) as caught:
        damaged.provide(Role.MASTER)
    assert caught.value.code == ErrorCode.SYSTEM
