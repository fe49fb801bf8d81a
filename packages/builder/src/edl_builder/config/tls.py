"""The files of TLS, read and checked before the builder listens."""

from __future__ import annotations

import argparse
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edl_builder.config.values import check_private, check_section, text, wrong_setting

_WHERE = "[tls]"


@dataclass(frozen=True, slots=True)
class Tls:
    """The files in PEM; with ``client_ca``, only callers with a certificate of it are served."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


def read_tls(options: argparse.Namespace, section: object) -> Tls | None:
    """Read the files of the command line, or of the section ``tls`` of the settings file.

    Returns:
        None if there are none.

    Raises:
        BuilderError: a file cannot be read or is damaged, or the key is not the certificate's;
            gRPC itself would only say that it cannot listen.
    """
    found = check_section(section, {"certificate", "key", "client_ca"}, _WHERE)
    certificate = _path(options.tls_certificate, found, "certificate")
    key = _path(options.tls_key, found, "key")
    client_ca = _path(options.tls_client_ca, found, "client_ca")
    if certificate is None and key is None and client_ca is None:
        return None
    if certificate is None or key is None:
        raise wrong_setting("--tls-certificate", "a certificate and its key belong together")
    _check_certificates(certificate)
    if client_ca is not None:
        _check_certificates(client_ca)
    _check_key(key, certificate)
    return Tls(certificate, key, client_ca)


def _path(option: Path | None, found: Mapping[str, Any], name: str) -> Path | None:
    in_file = text(found, name, _WHERE)
    return option or (Path(in_file) if in_file else None)


def _check_certificates(path: Path) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(path)
    except ssl.SSLError as error:
        raise wrong_setting(_WHERE, f"{path} has no certificate in PEM, or damaged ones") from error
    except OSError as error:
        raise wrong_setting(_WHERE, f"{path} cannot be read: {error.strerror}") from error


def _check_key(key: Path, certificate: Path) -> None:
    try:
        check_private(key, _WHERE)
        # OpenSSL asks the terminal for the password of a key unless it is given here.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, lambda: "")
    except ssl.SSLError as error:
        what = f"{key} is not a PEM private key without a password, or not that of {certificate}"
        raise wrong_setting(_WHERE, what) from error
    except OSError as error:
        raise wrong_setting(_WHERE, f"{key} cannot be read: {error.strerror}") from error
