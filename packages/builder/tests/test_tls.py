"""The files of TLS: what is wrong with them is said before the builder listens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from certificates import Certificate, make_ca, make_certificate
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from edl_builder.config import builder_config
from edl_builder.config.tls import Tls
from edl_builder.core.failure import BuilderError


@pytest.fixture
def mine(tmp_path: Path) -> Certificate:
    return make_certificate(make_ca(tmp_path / "ca"), tmp_path, "server")


def _read(mine: Certificate, client_ca: Path) -> Tls | None:
    folder = mine.key.parent
    return builder_config.read(
        [
            *("--state-dir", str(folder / "state"), "--tls-client-ca", str(client_ca)),
            *("--tls-certificate", str(mine.certificate), "--tls-key", str(mine.key)),
        ]
    ).tls


def test_files_of_tls_are_taken(mine: Certificate) -> None:
    ca = mine.certificate
    assert _read(mine, ca) == Tls(mine.certificate, mine.key, ca)


def _damage(path: Path) -> None:
    path.write_text(path.read_text().replace("-----\n", "-----\nx", 1))


def _empty(path: Path) -> None:
    path.write_text("")


def _to_folder(path: Path) -> None:
    path.unlink()
    path.mkdir(mode=0o700)


def _set_password(path: Path) -> None:
    key = load_pem_private_key(path.read_bytes(), None)
    with_password = BestAvailableEncryption(b"secret")
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, with_password))


def _replace_key(path: Path) -> None:
    other = make_ca(path.parent / "other")
    path.write_bytes(other.key.read_bytes())


@pytest.mark.parametrize("name", ["server.key", "server.pem", "clients.pem"])
@pytest.mark.parametrize("damage", [_damage, _empty, Path.unlink, _to_folder])
def test_a_damaged_file_is_named(
    mine: Certificate, name: str, damage: Callable[[Path], object]
) -> None:
    client_ca = mine.key.parent / "clients.pem"
    client_ca.write_bytes(mine.certificate.read_bytes())
    damage(mine.key.parent / name)
    with pytest.raises(BuilderError, match=rf"{name} (has no|is not|cannot be read)") as refused:
        _read(mine, client_ca)
    assert refused.value.failure.where == "[tls]"


@pytest.mark.parametrize("spoil", [_set_password, _replace_key])
def test_a_key_that_does_not_fit_is_named(
    mine: Certificate, spoil: Callable[[Path], object]
) -> None:
    spoil(mine.key)
    with pytest.raises(BuilderError, match=r"server\.key is not .* not that of .*server\.pem"):
        _read(mine, mine.certificate)


@pytest.mark.parametrize("name", ["certificate", "key", "client_ca"])
def test_a_path_is_a_text(tmp_path: Path, name: str) -> None:
    settings = tmp_path / "builder.toml"
    settings.write_text(f"[tls]\n{name} = 1\n")
    with pytest.raises(BuilderError, match=f"{name} is not a text"):
        builder_config.read(["--state-dir", str(tmp_path), "--config", str(settings)])
