"""Tenants: their tokens expire, and change without a restart."""

from __future__ import annotations

import math
import os
import tomllib
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from edl_builder.config import builder_config
from edl_builder.config.access import AccessFile, hash_token, read_access
from edl_builder.core.failure import BuilderError
from edl_builder.core.quota import Quota


def test_tokens_with_and_without_an_expiry() -> None:
    access = read_access(
        tomllib.loads(
            f"""
[ann]
token_sha256 = ["{hash_token("one")}"]
tokens = [{{ sha256 = "{hash_token("two")}", expires = 2026-01-01T00:00:00Z }}]
quota = {{ builds = 10, minutes = 1.5 }}
"""
        )
    )
    assert access.tokens[hash_token("one")].expires is None
    two = access.tokens[hash_token("two")]
    assert two.expires == 1767225600.0
    assert two.tenant.name == "ann"
    assert two.tenant.quota == Quota(builds=10, minutes=1.5)


@pytest.mark.parametrize(
    "tenant",
    [
        {"token_sha256": ["a-token-itself"]},
        {"tokens": [{"sha256": "0" * 64, "expires": "tomorrow"}]},
        {"tokens": [{"sha256": "0" * 64, "expiry": 1}]},
        {"tokens": [{"token": "secret"}]},
        {"quota": {"builds": -1}},
        {"quota": {"bytes": 1}},
        {"quota": {"builds": True}},
        {"quota": {"minutes": math.nan}},
        {"quota": "none"},
        {"unknown": 1},
        {"repositories": "registry.example/team/*"},
        {"repositories": [1]},
        {"credentials": "git"},
        {"certificates": "ann"},
        {"token_sha256": "0" * 64},
        {"tokens": ["0" * 64]},
        {"subjects": "ann"},
        {"subjects": [{"issuer": ["a"], "subject": "b"}]},
        {"sees_all": "false"},
    ],
)
def test_what_is_wrong_is_refused(tenant: dict[str, object]) -> None:
    with pytest.raises(BuilderError) as refused:
        read_access({"ann": tenant})
    assert "ann" in refused.value.failure.where


@pytest.mark.parametrize(
    "content",
    [
        'tenants = "ann"',
        'registries = ["r.com"]',
        '[registries]\nx = "y"',
        '[registries."r.com"]\nplain_http = "false"',
        '[policy]\nbases = "*"',
        '[policy]\nregistries = "r.com"',
        '[policy]\ndefault_base = ["b"]',
        '[git_policy]\nhosts = "example.com"',
        '[git_policy]\nprivate_hosts = "git.example.com"',
        '[git.mine]\nhosts = "example.com"',
        "[limits]\nbuilding = 0",
        "[limits]\npreparing = 0",
        "[limits]\nfiles = nan",
        "[limits]\nkeep_images = 2.5",
        "[limits]\nbuild_s = inf",
    ],
)
def test_a_value_of_a_wrong_type_is_refused_and_opens_nothing(tmp_path: Path, content: str) -> None:
    settings = tmp_path / "builder.toml"
    settings.write_text(content)
    with pytest.raises(BuilderError):
        builder_config.read(["--state-dir", str(tmp_path), "--config", str(settings)])


def test_limits_of_numbers_and_seconds_are_taken(tmp_path: Path) -> None:
    settings = tmp_path / "builder.toml"
    settings.write_text("[limits]\nbuilding = 3\nkeep_images = 0\nbuild_s = 0.5\n")
    arguments = ["--state-dir", str(tmp_path), "--config", str(settings)]
    found = builder_config.read(arguments)
    assert (found.limits.building, found.keep_images, found.limits.build_s) == (3, 0, 0.5)
    with pytest.raises(BuilderError) as refused:
        builder_config.read([*arguments, "--max-builds", "-3"])
    assert refused.value.failure.where == "--max-builds"


class Seconds:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 10  # long enough that every call looks at the file
        return self.now


def _write(path: Path, *tokens: str) -> None:
    listed = ", ".join(f'"{hash_token(token)}"' for token in tokens)
    new = path.with_suffix(".new")
    new.write_text(f"[tenants.ann]\ntoken_sha256 = [{listed}]\n")
    os.replace(new, path)


def test_tokens_change_without_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "builder.toml"
    _write(path, "old")
    first = read_access({"ann": {"token_sha256": [hash_token("old")]}})
    access = AccessFile(path, first, Seconds())
    assert set(access().tokens) == {hash_token("old")}
    _write(path, "old", "new")
    assert set(access().tokens) == {hash_token("old"), hash_token("new")}
    _write(path, "new")
    assert set(access().tokens) == {hash_token("new")}


@pytest.mark.parametrize(
    "content", ["", "[tenants", "[tenants]\n", "tenants = 1", "[tenants.x]\ny=1"]
)
def test_a_damaged_file_changes_no_access(tmp_path: Path, content: str) -> None:
    path = tmp_path / "builder.toml"
    _write(path, "old")
    first = read_access({"ann": {"token_sha256": [hash_token("old")]}})
    access = AccessFile(path, first, Seconds())
    path.write_text(content)
    assert access() is first
    path.unlink()
    assert access() is first


def test_secrets_that_all_users_may_read_are_refused(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("hunter22\n")
    settings = tmp_path / "builder.toml"
    settings.write_text(f'[registries."r.com"]\nusername = "me"\npassword_file = "{password}"\n')
    arguments = ["--state-dir", str(tmp_path / "s"), "--config", str(settings)]
    for mode in (0o644, 0o604, 0o602, 0o666):
        password.chmod(mode)
        with pytest.raises(BuilderError, match="every user may read"):
            builder_config.read(arguments)
    for mode in (0o600, 0o400, 0o640):
        password.chmod(mode)
        assert builder_config.read(arguments).registries["r.com"].password == "hunter22"


def test_a_socket_lies_where_no_other_user_can_put_one(tmp_path: Path) -> None:
    folder = tmp_path / "sockets"
    folder.mkdir()
    arguments = ["--state-dir", str(tmp_path / "s"), "--listen", f"unix:{folder}/socket"]
    for mode in (0o700, 0o755):
        folder.chmod(mode)
        assert builder_config.read(arguments).socket == folder / "socket"
    for mode in (0o720, 0o702, 0o777):
        folder.chmod(mode)
        with pytest.raises(BuilderError, match="other users may write"):
            builder_config.read(arguments)
    if os.geteuid() == 0:
        folder.chmod(0o700)
        os.chown(folder, 65534, 65534)
        with pytest.raises(BuilderError, match="other users may write"):
            builder_config.read(arguments)


@pytest.mark.parametrize(
    ("listen", "is_open"),
    [
        ("127.0.0.1:1", False), ("localhost:1", False), ("[::1]:1", False), ("::1:1", False),
        ("0.0.0.0:1", True), ("[::]:1", True), ("builder.test:1", True),
    ],
)  # fmt: skip
def test_only_loopback_is_served_without_tls(tmp_path: Path, listen: str, is_open: bool) -> None:
    arguments = ["--state-dir", str(tmp_path / "s"), "--listen", listen]
    if not is_open:
        builder_config.read(arguments)
        return
    with pytest.raises(BuilderError, match="open to other machines, without TLS"):
        builder_config.read(arguments)


def test_the_signing_key_is_the_builders_alone(tmp_path: Path) -> None:
    key = tmp_path / "signing.key"
    settings = tmp_path / "builder.toml"
    settings.write_text(f'[signing]\nkey_file = "{key}"\n')
    arguments = ["--state-dir", str(tmp_path / "s"), "--config", str(settings)]
    with pytest.raises(BuilderError, match="cannot be read"):
        builder_config.read(arguments)
    private = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    key.write_bytes(private)
    key.chmod(0o644)
    with pytest.raises(BuilderError, match="every user may read"):
        builder_config.read(arguments)
    key.chmod(0o600)
    signing = builder_config.read(arguments).signing
    assert signing is not None
    assert signing.builder_id == "urn:edl:builder"
    key.write_text("nonsense")
    with pytest.raises(BuilderError, match="not a PEM private key"):
        builder_config.read(arguments)
