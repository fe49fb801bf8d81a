"""One authority for servers and clients of the cluster, and the kubeconfig files of its users."""

from __future__ import annotations

import base64
import datetime
import ipaddress
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from .layout import API_ADDRESS, FIRST_SERVICE_ADDRESS, NodeAddress

LIFETIME = datetime.timedelta(days=30)
USERS = {
    # file: (organization, common name); Kubernetes takes them for group and user
    "admin": ("system:masters", "edl-admin"),
    "kubelet-client": ("system:masters", "kube-apiserver-kubelet-client"),
    "controller-manager": (None, "system:kube-controller-manager"),
    "scheduler": (None, "system:kube-scheduler"),
    "proxy": (None, "system:kube-proxy"),
}


class Authority:
    """Signs certificates into a folder: NAME.crt and NAME.key, in PEM, and ca.crt.

    Another one of the same folder has the same key.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._name = _name(None, "edl-test-cluster")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (kept := folder / "ca.key").exists():
            key = serialization.load_pem_private_key(kept.read_bytes(), None)
            assert isinstance(key, ec.EllipticCurvePrivateKey)
            self._key = key
            return
        self._key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self._write("ca", certificate, self._key)

    def sign_user(self, file: str, organization: str | None, common_name: str) -> None:
        self._sign(file, _name(organization, common_name), client=True)

    def sign_api_server(self) -> None:
        services = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"]
        names = ["localhost", *services, "kubernetes.default.svc.cluster.local"]
        addresses = ["127.0.0.1", API_ADDRESS, FIRST_SERVICE_ADDRESS]
        self._sign("apiserver", _name(None, "kube-apiserver"), names, addresses)

    def sign_node(self, node: NodeAddress) -> None:
        name = _name("system:nodes", f"system:node:{node.name}")
        self._sign(node.name, name, [node.name], [node.address], client=True)

    def write_service_account_key(self) -> None:
        """RSA, because every library that verifies tokens knows it."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._write_key("service-accounts", key)
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        (self.folder / "service-accounts.pub").write_bytes(public)

    def kubeconfig(self, user: str, server: str) -> str:
        """A file that needs no other: the certificates are in it."""

        def encode(name: str) -> str:
            return base64.b64encode((self.folder / name).read_bytes()).decode()

        cluster = {"server": server, "certificate-authority-data": encode("ca.crt")}
        credentials = {
            "client-certificate-data": encode(f"{user}.crt"),
            "client-key-data": encode(f"{user}.key"),
        }
        return yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "edl-test", "cluster": cluster}],
                "users": [{"name": user, "user": credentials}],
                "contexts": [
                    {"name": "edl-test", "context": {"cluster": "edl-test", "user": user}}
                ],
                "current-context": "edl-test",
            }
        )

    def _sign(
        self,
        file: str,
        subject: x509.Name,
        names: list[str] | None = None,
        addresses: list[str] | None = None,
        *,
        client: bool = False,
    ) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names or ()]
        alternatives += [x509.IPAddress(ipaddress.ip_address(one)) for one in addresses or ()]
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH] if client else []
        builder = self._builder(subject, key.public_key())
        if alternatives:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), False)
        builder = builder.add_extension(_key_usage(signs_certificates=False), True)
        self._write(file, builder.sign(self._key, hashes.SHA256()), key)

    def _builder(
        self, subject: x509.Name, public_key: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + LIFETIME)
        )

    def _write(
        self, file: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
    ) -> None:
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        (self.folder / f"{file}.crt").write_bytes(pem)
        self._write_key(file, key)

    def _write_key(self, file: str, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
        path = self.folder / f"{file}.key"
        path.touch(mode=0o600)
        path.write_bytes(pem)


def _name(organization: str | None, common_name: str) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organization:
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(attributes)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
