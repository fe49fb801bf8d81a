"""An issuer of identity tokens: real keys, real signatures, and its keys over real HTTP."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from certificates import Certificate
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

ISSUER = "https://kubernetes.default.svc.cluster.local"
AUDIENCE = "edl-builder"
SUBJECT = "system:serviceaccount:team-a:training"
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey

RSA = rsa.generate_private_key(65537, 2048)
OTHER_RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())


def claims(**changed: Any) -> dict[str, Any]:
    """Return the claims of a service account, without those that are None."""
    now = time.time()
    found = {
        "iss": ISSUER,
        "aud": [AUDIENCE, "another"],
        "sub": SUBJECT,
        "exp": now + 3600,
        "iat": now,
        "nbf": now,
        **changed,
    }
    return {name: value for name, value in found.items() if value is not None}


def sign(
    key: PrivateKey = RSA, kid: str | None = "one", algorithm: str = "RS256", **changed: Any
) -> str:
    """A token that this key has signed."""
    headers = {} if kid is None else {"kid": kid}
    # Not jwt.encode, which refuses to make some of the bad ones.
    return jwt.PyJWS().encode(json.dumps(claims(**changed)).encode(), key, algorithm, headers)


def forge(header: dict[str, Any], secret: bytes | None = None, **changed: Any) -> str:
    """A token with any header, signed with a shared secret, or not at all."""
    parts = [_encode(json.dumps(part).encode()) for part in (header, claims(**changed))]
    signed = ".".join(parts)
    signature = b"" if secret is None else hmac.digest(secret, signed.encode(), hashlib.sha256)
    return f"{signed}.{_encode(signature)}"


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def pem(key: PrivateKey = RSA) -> bytes:
    """The public key as a file would have it."""
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def jwk(key: PrivateKey, kid: str, **more: Any) -> dict[str, Any]:
    """A public key as an issuer publishes it."""
    public = key.public_key()
    if isinstance(public, rsa.RSAPublicKey):
        found = jwt.algorithms.RSAAlgorithm.to_jwk(public, as_dict=True)
    else:
        found = jwt.algorithms.ECAlgorithm.to_jwk(public, as_dict=True)
    return {**found, "kid": kid, "use": "sig", **more}


class TokenIssuer:
    """An issuer with settable answers, which counts its requests."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.keys: list[dict[str, Any]] = [jwk(RSA, "one", alg="RS256"), jwk(EC, "two")]
        self.answer: bytes | None = None
        self.status = 200
        self.asked: list[str] = []
        self.hold = threading.Event()
        self.hold.set()


@contextlib.contextmanager
def issuing(certificate: Certificate | None = None) -> Iterator[TokenIssuer]:
    """An issuer on loopback; over https, if it has a certificate."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.asked.append(self.headers.get("Authorization", ""))
            issuer.hold.wait(200)
            content = issuer.answer or json.dumps({"keys": issuer.keys}).encode()
            self.send_response(issuer.status)
            self.send_header("Location", f"{issuer.url}/elsewhere")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    scheme = "http"
    if certificate is not None:
        scheme, context = "https", ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.certificate, certificate.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    issuer = TokenIssuer(f"{scheme}://127.0.0.1:{server.server_port}/openid/v1/jwks")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield issuer
    finally:
        issuer.hold.set()
        server.shutdown()
        thread.join()
        server.server_close()
