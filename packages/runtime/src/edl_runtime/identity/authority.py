"""The authority of one job: signs the certificates of its processes.

Everything is EC P-256: a key takes a tenth of a millisecond, and gRPC accepts nothing faster.
"""

from __future__ import annotations

from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from edl_proto.identity.names import Identity, Role

_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)
_END = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
"""The end that RFC 5280 gives certificates without one. The end of the job ends trust, since only
its processes trust its authority; no clock, however wrong, ends it before."""

_SERVES = frozenset((Role.MASTER, Role.SERVER, Role.WORKER))
_CALLS = frozenset((Role.SERVER, Role.WORKER, Role.CLIENT, Role.VIEWER))


class Authority:
    """A key with the certificate that the processes of one job trust."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self._certificate = certificate

    @classmethod
    def create(cls, job: str) -> Authority:
        """Create an authority with a new key."""
        key = ec.generate_private_key(ec.SECP256R1())
        # A name in a certificate has 64 characters at most; no program reads this one.
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"edl job {job}"[:64])])
        certificate = (
            _builder(name, name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .sign(key, hashes.SHA256())
        )
        return cls(key, certificate)

    @classmethod
    def load(cls, pem: bytes) -> Authority:
        """Load an authority that ``to_pem`` has written. Raises: ValueError: it is damaged."""
        return cls(_load_key(pem), x509.load_pem_x509_certificate(pem))

    def to_pem(self) -> bytes:
        """Return key and certificate in PEM."""
        return _key_pem(self._key) + _pem(self._certificate)

    def issue(self, identity: Identity, former: bytes = b"") -> bytes:
        """Issue the key and certificate by which a process proves its identity.

        Args:
            identity: of the process.
            former: what an earlier call returned; its key is kept.

        Returns:
            key, certificate, and the authority's certificate, as PEM.

        Raises:
            ValueError: ``former`` is damaged.
        """
        key = _load_key(former) if former else ec.generate_private_key(ec.SECP256R1())
        usages = []
        if identity.role in _SERVES:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        if identity.role in _CALLS:
            usages.append(ExtendedKeyUsageOID.CLIENT_AUTH)
        names = [x509.UniformResourceIdentifier(identity.uri), x509.DNSName(identity.host)]
        certificate = (
            # Without a common name: it would count as a name of the host.
            _builder(x509.Name([]), self._certificate.subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            # Critical, as a certificate without a subject requires.
            .add_extension(x509.SubjectAlternativeName(names), critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        return _key_pem(key) + _pem(certificate) + _pem(self._certificate)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_BEGIN)
        .not_valid_after(_END)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _load_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("the key is of another kind")
    return key


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
