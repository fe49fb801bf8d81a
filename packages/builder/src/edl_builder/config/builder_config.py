"""Every setting of the builder, with its unit, its default and the reason for it."""

from __future__ import annotations

import argparse
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edl_builder.adapters.git import GitCredential
from edl_builder.adapters.identity_tokens import Issuer
from edl_builder.adapters.image_signer import BUILDER_ID, Signing
from edl_builder.config.access import Access, read_access
from edl_builder.config.issuers import read_issuers
from edl_builder.config.tls import Tls, read_tls
from edl_builder.config.values import (
    check_limit,
    check_private,
    check_section,
    flag,
    text,
    texts,
    wrong_setting,
)
from edl_builder.core.archive import ArchiveLimits
from edl_builder.core.build import BuildLimits
from edl_builder.core.build_request import RequestPolicy
from edl_builder.core.recipe import PackageIndex
from edl_builder.core.references import parse_reference
from edl_builder.core.source_policy import SourcePolicy
from edl_proto.unix_socket import MAX_PATH_BYTES
from edl_registry.registry import RegistryAccess
from edl_registry.signatures import SigningKey
from edl_runtime.image_names import is_on_this_machine

LOG_NBYTES = 4 << 20
"""Of one build; pip writes some 100 KiB."""

KEEP_IMAGES = 20
"""The number of finished images that stay in the engine: their layers are the build cache."""

_UNIX = "unix:"


@dataclass(frozen=True, slots=True)
class Config:
    """All settings."""

    host: str
    port: int
    state_dir: Path
    policy: RequestPolicy
    limits: BuildLimits = field(default_factory=BuildLimits)
    archive: ArchiveLimits = field(default_factory=ArchiveLimits)
    log_nbytes: int = LOG_NBYTES
    keep_images: int = KEEP_IMAGES
    engine: str = ""
    network: str = ""
    index: PackageIndex = field(default_factory=PackageIndex)
    wheels: tuple[Path, ...] = ()
    requirements: tuple[str, ...] = ()
    registries: Mapping[str, RegistryAccess] = field(default_factory=dict)
    git_credentials: Mapping[str, GitCredential] = field(default_factory=dict)
    git_ca_file: str = ""
    signing: Signing | None = None
    access: Access = field(default_factory=Access)
    access_file: Path | None = None
    issuers: tuple[Issuer, ...] = ()
    tls: Tls | None = None
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
    until_stdin_closes: bool = False
    socket: Path | None = None

    @property
    def target(self) -> str:
        """The address to listen at: host:port, or ``unix:`` and the path of the socket."""
        if self.socket is not None:
            return f"unix:{self.socket}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """All passwords; no message or log line may contain them."""
        return (
            *(access.password for access in self.registries.values()),
            *(credential.password for credential in self.git_credentials.values()),
        )


def parser() -> argparse.ArgumentParser:
    """Return the command line; secrets and tenants are in the file of ``--config``."""
    found = argparse.ArgumentParser(
        prog="edl_builder", description="Turns model zoos into images. See docs/builder.md."
    )
    add = found.add_argument
    add(
        "--listen", default="127.0.0.1:0", metavar="HOST:PORT|unix:PATH", help="default %(default)s"
    )
    add("--state-dir", type=Path, required=True, metavar="DIR", help="state that survives restarts")
    add("--config", type=Path, metavar="FILE.toml", help="tenants, credentials, limits")
    add("--engine", default="", metavar="URL", help="unix:///... or tcp://...; default DOCKER_HOST")
    add("--network", default="", metavar="NAME", help="network of build steps")
    add("--registry", action="append", default=[], metavar="HOST[:PORT]", help="allow pushes to it")
    add("--plain-http", action="append", default=[], metavar="HOST[:PORT]", help="use no TLS")
    add("--base-image", default="", metavar="NAME", help="for requests that name none")
    add("--allow-base", action="append", default=[], metavar="PATTERN", help="other base images")
    add("--runtime-wheels", type=Path, metavar="DIR", help="wheels of the worker")
    add("--runtime-requirement", action="append", default=[], metavar="REQ", help="edl-worker[cpu]")
    add("--index-url", default="", help="where pip finds packages")
    add("--find-links", default="", help="more places for pip")
    add("--max-builds", type=int, default=0, metavar="N", help="number of builds at a time")
    add("--tls-certificate", type=Path, metavar="FILE")
    add("--tls-key", type=Path, metavar="FILE")
    add("--tls-client-ca", type=Path, metavar="FILE", help="require client certificates")
    add("--insecure", action="store_true", help="serve other machines without TLS or tokens")
    add("--metrics-port", type=int, metavar="PORT", help="port of the metrics; 0 for any")
    add(
        "--metrics-host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address of the metrics, which have neither TLS nor tokens; default %(default)s",
    )
    add("--until-stdin-closes", action="store_true", help="end with the process that started it")
    return found


def read(arguments: Sequence[str] | None = None) -> Config:
    """Read the settings of a command line and its file.

    Raises:
        BuilderError: a setting is wrong; says which.
    """
    options = parser().parse_args(arguments)
    file = _load(options.config) if options.config else {}
    check_section(
        file,
        {
            *("tenants", "issuers", "registries", "git", "limits", "policy", "git_policy", "tls"),
            "signing",
        },
        "the file",
    )
    host, port, socket = _split(options.listen)
    policy = _section(file, "policy", {"default_base", "bases", "registries"})
    sources = _section(file, "git_policy", {"hosts", "private_hosts", "ca_file"})
    registries = _registries(file, options.plain_http)
    issuers = read_issuers(_section(file, "issuers", None))
    limits, archive, rest = _limits(file, options.max_builds)
    base = options.base_image or text(policy, "default_base", "[policy]")
    if base:
        parse_reference(base, "base image")
    config = Config(
        host=host,
        port=port,
        state_dir=options.state_dir.absolute(),
        policy=RequestPolicy(
            default_base=base,
            bases=(*options.allow_base, *texts(policy, "bases", "[policy]")),
            registries=tuple(
                dict.fromkeys((*options.registry, *texts(policy, "registries", "[policy]")))
            ),
            sources=SourcePolicy(
                texts(sources, "hosts", "[git_policy]", ("*",)),
                texts(sources, "private_hosts", "[git_policy]"),
            ),
            archive_nbytes=archive.archive_nbytes,
        ),
        limits=limits,
        archive=archive,
        log_nbytes=rest.get("log_nbytes", LOG_NBYTES),
        keep_images=rest.get("keep_images", KEEP_IMAGES),
        engine=options.engine,
        network=options.network,
        index=PackageIndex(options.index_url, options.find_links),
        wheels=_wheels(options.runtime_wheels),
        requirements=tuple(options.runtime_requirement),
        registries=registries,
        git_credentials=_git(file),
        git_ca_file=text(sources, "ca_file", "[git_policy]"),
        signing=_signing(file),
        issuers=issuers,
        access=read_access(file.get("tenants", {}), {issuer.name for issuer in issuers}),
        access_file=options.config,
        tls=read_tls(options, file.get("tls", {})),
        metrics_port=options.metrics_port,
        metrics_host=options.metrics_host,
        until_stdin_closes=options.until_stdin_closes,
        socket=socket,
    )
    if socket is None and not is_on_this_machine(config.target) and not options.insecure:
        if config.tls is None:
            raise wrong_setting("--listen", f"{host} is open to other machines, without TLS")
        if config.access.is_open and config.tls.client_ca is None:
            raise wrong_setting("--listen", f"every caller that reaches {host} could push images")
    if config.tls is None and config.access.certificates:
        raise wrong_setting("tenants", "certificates are given, but no TLS")
    if "@" in config.index.url or "@" in config.index.find_links:
        raise wrong_setting(
            "--index-url", "a password would be visible in the history of every image"
        )
    return config


def _load(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise wrong_setting(f"--config {path}", f"the file cannot be read: {error}") from error


def _split(text: str) -> tuple[str, int, Path | None]:
    if text.startswith(_UNIX):
        return "", 0, _socket(Path(text.removeprefix(_UNIX)))
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535 or not host:
        raise wrong_setting("--listen", f"{text!r} is not HOST:PORT")
    return host.strip("[]"), int(port), None


def _socket(path: Path) -> Path:
    """A socket has no password: the folder decides who may reach it."""
    if not path.is_absolute() or len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise wrong_setting(
            "--listen", f"{path} is not an absolute path of at most {MAX_PATH_BYTES} bytes"
        )
    try:
        found = path.parent.stat()
    except OSError as error:
        raise wrong_setting("--listen", f"{path.parent}: {error.strerror}") from error
    if found.st_uid not in (0, os.getuid()) or found.st_mode & 0o022:
        raise wrong_setting("--listen", f"other users may write to {path.parent}")
    return path


def _section(file: Mapping[str, Any], name: str, known: set[str] | None) -> Mapping[str, Any]:
    return check_section(file.get(name, {}), known, f"[{name}]")


def _secret(found: Mapping[str, Any], where: str) -> str:
    """Read a password from its own file: settings are shown and copied, secrets are not."""
    path = text(found, "password_file", where)
    if not path:
        return ""
    try:
        check_private(Path(path), where)
        return Path(path).read_text("utf-8").rstrip("\n")
    except OSError as error:
        raise wrong_setting(where, f"password_file cannot be read: {error.strerror}") from error
    except UnicodeError:
        raise wrong_setting(where, "the text of password_file is not UTF-8") from None


def _registries(file: Mapping[str, Any], plain: Sequence[str]) -> dict[str, RegistryAccess]:
    found = {host: RegistryAccess(plain_http=True) for host in plain}
    for host, each in _section(file, "registries", None).items():
        where = f"[registries.{host!r}]"
        check_section(each, {"username", "password_file", "plain_http", "ca_file"}, where)
        found[host] = RegistryAccess(
            text(each, "username", where),
            _secret(each, where),
            flag(each, "plain_http", where, default=host in plain),
            text(each, "ca_file", where),
        )
    return found


def _git(file: Mapping[str, Any]) -> dict[str, GitCredential]:
    found = {}
    for name, each in _section(file, "git", None).items():
        where = f"[git.{name}]"
        check_section(each, {"username", "password_file", "hosts"}, where)
        hosts = texts(each, "hosts", where)
        if not hosts:
            raise wrong_setting(where, "hosts are missing: a credential is sent only to these")
        user = text(each, "username", where, "git")
        found[name] = GitCredential(user, _secret(each, where), hosts)
    return found


def _signing(file: Mapping[str, Any]) -> Signing | None:
    if "signing" not in file:
        return None
    found = _section(file, "signing", {"key_file", "builder_id"})
    path = Path(text(found, "key_file", "[signing]"))
    try:
        check_private(path, "[signing]")
        key = SigningKey(path.read_bytes())
    except OSError as error:
        raise wrong_setting("[signing]", f"key_file cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise wrong_setting("[signing]", f"{path}: {error}") from error
    return Signing(key, text(found, "builder_id", "[signing]", BUILDER_ID))


def _limits(
    file: Mapping[str, Any], building: int
) -> tuple[BuildLimits, ArchiveLimits, Mapping[str, int]]:
    of_builds = set(BuildLimits.__slots__)
    of_archives = set(ArchiveLimits.__slots__)
    found = _section(file, "limits", of_builds | of_archives | {"log_nbytes", "keep_images"})
    for name, value in found.items():
        check_limit(name, value, "[limits]")
    if building:
        check_limit("building", building, "--max-builds")
    builds = {name: value for name, value in found.items() if name in of_builds}
    if building:
        builds["building"] = building
    archives = {name: value for name, value in found.items() if name in of_archives}
    return BuildLimits(**builds), ArchiveLimits(**archives), found


def _wheels(folder: Path | None) -> tuple[Path, ...]:
    if folder is None:
        return ()
    found = tuple(sorted(folder.glob("*.whl")))
    if not found:
        raise wrong_setting("--runtime-wheels", f"there are no wheels in {folder}")
    return found
