"""Registries as companies have them: behind TLS and a password."""

from __future__ import annotations

import contextlib
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import certificates
import pytest
import requests
import zoos

from edl_builder.adapters.registry import HttpRegistry
from edl_builder.core.failure import BuilderError, Reason
from edl_builder.core.references import Reference
from edl_proto.errors import ErrorCode
from edl_proto.v1 import builder_pb2 as pb
from edl_registry.registry import RegistryAccess
from edl_testing.requirements import require_program
from tests.ports import free_port

from .docker_environment import DockerEnvironment, run_program, until
from .service import build, serving

PASSWORD = "only-the-builder-knows"


@dataclass(frozen=True)
class Guarded:
    """A registry with a password; with TLS, also the certificate of its authority."""

    host: str
    ca: Path | None
    log: Path


@contextlib.contextmanager
def guarded_registry(folder: Path, *, tls: bool) -> Iterator[Guarded]:
    """``docker-registry`` with htpasswd, whose one user is ``builder``."""
    program = require_program("docker-registry", "docker-registry")
    port = free_port()
    users = folder / "htpasswd"
    made = subprocess.run(
        ["openssl", "passwd", "-apr1", PASSWORD], capture_output=True, text=True, check=True
    )
    users.write_text(f"builder:{_bcrypt(PASSWORD) or made.stdout.strip()}\n")
    lines = ""
    ca = None
    if tls:
        authority = certificates.make_ca(folder / "ca")
        mine = certificates.make_certificate(authority, folder, "registry")
        ca = authority.certificate
        lines = f", tls: {{certificate: {mine.certificate}, key: {mine.key}}}"
    settings = folder / "registry.yml"
    settings.write_text(
        "version: 0.1\nlog: {level: warn}\n"
        f"storage: {{filesystem: {{rootdirectory: {folder / 'images'}}}}}\n"
        f"auth: {{htpasswd: {{realm: edl, path: {users}}}}}\n"
        f'http: {{addr: "127.0.0.1:{port}"{lines}}}\n'
    )
    log = folder / "registry.log"
    scheme = "https" if tls else "http"
    with run_program([program, "serve", str(settings)], log) as process:

        def answers() -> bool:
            assert process.poll() is None, log.read_text()
            with contextlib.suppress(requests.RequestException):
                url = f"{scheme}://127.0.0.1:{port}/v2/"
                return requests.get(url, verify=str(ca) if ca else True, timeout=30).ok is False
            return False

        until("the registry answers", answers)
        yield Guarded(f"127.0.0.1:{port}", ca, log)


def _bcrypt(password: str) -> str:
    """Return the hash of a password that docker-registry accepts; libxcrypt computes it."""
    program = "use strict; print crypt($ARGV[0], '$2y$05$' . 'abcdefghijklmnopqrstuu');"
    done = subprocess.run(
        ["perl", "-e", program, password], capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture(params=["http", "https"])
def guarded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Guarded]:
    with guarded_registry(tmp_path, tls=request.param == "https") as found:
        yield found


def settings_for(guarded: Guarded, folder: Path, password: str) -> Path:
    (folder / "password").write_text(f"{password}\n")
    (folder / "password").chmod(0o600)
    ca = f'ca_file = "{guarded.ca}"\n' if guarded.ca else "plain_http = true\n"
    path = folder / "builder.toml"
    path.write_text(
        f'[registries."{guarded.host}"]\nusername = "builder"\n'
        f'password_file = "{folder}/password"\n{ca}'
    )
    return path


def test_an_image_goes_to_a_registry_with_a_password(
    docker_env: DockerEnvironment, guarded: Guarded, tmp_path: Path
) -> None:
    archive = zoos.tar({"m.py": f"x = '{uuid.uuid4().hex}'\n"})
    options = ("--registry", guarded.host, "--config")
    settings = settings_for(guarded, tmp_path, PASSWORD)
    with (
        serving(docker_env, tmp_path / "state", *options, str(settings)) as service,
        service.caller() as stub,
    ):
        first = build(stub, f"{guarded.host}/team/zoo", archive, tag="v1")
        assert first.error is None, first.text
        assert first.last.result.image.startswith(f"{guarded.host}/team/zoo@sha256:")
        again = build(stub, f"{guarded.host}/team/zoo", archive, tag="v1")
        assert again.last.result.reused
        told = first.text + again.text + service.log.read_text()
    assert PASSWORD not in told
    client = docker_env.client()
    with contextlib.closing(client):
        history = str(client.api.history(f"{guarded.host}/team/zoo:edl-{first.last.result.key}"))
    assert PASSWORD not in history


def test_a_wrong_password_is_reported_and_not_shown(
    docker_env: DockerEnvironment, guarded: Guarded, tmp_path: Path
) -> None:
    settings = settings_for(guarded, tmp_path, "a-wrong-one")
    options = ("--registry", guarded.host, "--config", str(settings))
    with serving(docker_env, tmp_path / "state", *options) as service, service.caller() as stub:
        outcome = build(stub, f"{guarded.host}/team/zoo", zoos.tar({"m.py": "x = 1\n"}))
        assert outcome.last.phase == pb.BUILD_FAILED
        assert outcome.last.error.code == ErrorCode.REGISTRY_UNAVAILABLE
        assert "401" in outcome.last.error.what
        assert "a-wrong-one" not in outcome.text + service.log.read_text()


def test_a_registry_whose_certificate_is_not_trusted_is_refused(tmp_path: Path) -> None:
    with guarded_registry(tmp_path, tls=True) as guarded:
        registry = HttpRegistry({guarded.host: RegistryAccess("builder", PASSWORD)})
        with pytest.raises(BuilderError) as refused:
            registry.find(Reference(guarded.host, "team/zoo", "v1"))
    assert refused.value.failure.reason is Reason.REGISTRY
