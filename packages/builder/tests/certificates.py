"""A certificate authority of a test's own, and certificates for loopback, made with openssl."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificate:
    """Files in PEM."""

    certificate: Path
    key: Path


def _openssl(*arguments: str | Path) -> None:
    command = ["openssl", *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True, timeout=200)


def make_ca(folder: Path) -> Certificate:
    """A certificate that signs others."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Certificate(folder / "ca.pem", folder / "ca.key")
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    _openssl(
        *("req", "-x509", *curve, "-keyout", made.key, "-out", made.certificate),
        *("-days", "2", "-subj", "/CN=test ca"),
    )
    return made


def make_certificate(ca: Certificate, folder: Path, name: str) -> Certificate:
    """A certificate for 127.0.0.1 and localhost with this common name."""
    made = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
    request, extensions = folder / f"{name}.csr", folder / f"{name}.ext"
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    _openssl("req", *curve, "-keyout", made.key, "-out", request, "-subj", f"/CN={name}")
    extensions.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    _openssl(
        *("x509", "-req", "-in", request, "-CA", ca.certificate, "-CAkey", ca.key),
        *("-CAcreateserial", "-out", made.certificate, "-days", "2", "-extfile", extensions),
    )
    return made
