"""Who calls the service: the command line, programs, SQLFlow."""

from __future__ import annotations

import ast
import contextlib
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import certificates
import pytest
from conftest import ROOT, Edl, read_all
from git_server import Remote
from git_server import serving as git_serving

from edl_builder.config.access import hash_token
from edl_testing.requirements import require
from tests import database_servers

from . import job_base
from .docker_environment import DockerEnvironment
from .service import Service, serving
from .test_jobs_in_containers import trained_model

TOKEN = "a-token-that-is-hard-to-guess"
SUBMITTER = ROOT / "examples" / "sqlflow" / "submitter.py"


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    with git_serving(tmp_path_factory.mktemp("git"), "of-the-builder") as found:
        yield found


@pytest.fixture(scope="module")
def guarded(
    docker_env: DockerEnvironment, remote: Remote, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Service, Path]]:
    """A service with TLS and one tenant; and the certificate by which it is trusted."""
    folder = tmp_path_factory.mktemp("guarded")
    ca = certificates.make_ca(folder / "ca")
    mine = certificates.make_certificate(ca, folder, "service")
    (folder / "git-password").write_text("of-the-builder\n")
    (folder / "git-password").chmod(0o600)
    settings = folder / "builder.toml"
    host = f"127.0.0.1:{remote.port}"
    settings.write_text(f"""
[tenants.team]
token_sha256 = ["{hash_token(TOKEN)}"]
repositories = ["{docker_env.registry}/team/*"]
credentials = ["company"]

[git.company]
username = "me"
password_file = "{folder}/git-password"
hosts = ["{host}"]

[git_policy]
private_hosts = ["{host}"]
ca_file = "{remote.ca}"

[tls]
certificate = "{mine.certificate}"
key = "{mine.key}"
""")
    with serving(docker_env, folder / "state", "--config", str(settings)) as service:
        yield service, ca.certificate


@pytest.fixture
def calling(
    edl: Edl, docker_env: DockerEnvironment, guarded: tuple[Service, Path], tmp_path: Path
) -> Edl:
    """Return the command ``edl`` of a user who may use the guarded service."""
    service, ca = guarded
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    token.chmod(0o600)
    edl.env |= {
        "EDL_BUILDER": service.address,
        "EDL_BUILDER_CA": str(ca),
        "EDL_BUILDER_TOKEN_FILE": str(token),
        "EDL_REPOSITORY": f"{docker_env.registry}/team/{uuid.uuid4().hex[:8]}",
    }
    return edl


@pytest.fixture
def zoo(tmp_path: Path) -> str:
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo" / "m.py").write_text("x = 1\n")
    return str(tmp_path / "zoo")


def test_the_command_builds_with_a_service(calling: Edl, zoo: str) -> None:
    built = calling("zoo", "build", "--model-zoo", zoo, "--tag", "v1", "--label", "team=a")
    name = built.out.strip()
    assert name.startswith(f"{calling.env['EDL_REPOSITORY']}@sha256:")
    assert "image: pushing" in built.err
    again = calling("zoo", "build", "--model-zoo", zoo, "--tag", "v1", "--label", "team=a", "-q")
    assert (again.out.strip(), again.err) == (name, "")
    as_object = calling("zoo", "build", "--model-zoo", zoo, "--label", "team=a", "-o", "json")
    assert (as_object.json["image"], as_object.json["reused"]) == (name, True)
    assert "nothing was built" in as_object.err


def test_what_tools_leave_in_a_zoo_is_no_part_of_it(calling: Edl, zoo: str) -> None:
    before = calling("zoo", "build", "--model-zoo", zoo, "-o", "json").json
    cache = Path(zoo) / "__pycache__"
    cache.mkdir()
    (cache / "m.cpython-311.pyc").write_bytes(b"x")
    assert calling("zoo", "build", "--model-zoo", zoo, "-o", "json").json["key"] == before["key"]


def test_a_repository_is_fetched_by_the_service_with_its_own_credential(
    calling: Edl, remote: Remote
) -> None:
    build = ("zoo", "build", "--git-credential", "company", "--build-log", "--model-zoo")
    built = calling(*build, f"{remote.url()}#v1:zoo")
    assert f"commit {remote.commits[0]}" in built.err
    assert "of-the-builder" not in built.err
    assert calling(*build, f"{remote.url()}@v2", "-o", "json").json["image"] not in built.out


@pytest.mark.parametrize(
    ("environment", "arguments", "code", "said"),
    [
        ({"EDL_BUILDER_TOKEN_FILE": ""}, (), 10, "EDL_BUILDER_TOKEN"),
        ({"EDL_BUILDER_TOKEN": "wrong"}, (), 10, "not known"),
        ({"EDL_BUILDER_CA": ""}, (), 11, "no builder answered"),
        ({"EDL_BUILDER": "127.0.0.1:1"}, (), 11, "127.0.0.1:1"),
        ({"EDL_BUILDER": "nowhere"}, (), 2, "HOST:PORT"),
        ({}, ("--repository", "{registry}/other/zoo"), 10, "may not push"),
        ({}, ("--repository", "elsewhere.example.com/team/zoo"), 10, "does not push"),
        ({}, ("--repository", "no name"), 2, "not the name of an image"),
        ({}, ("--base-image", "{registry}/missing/base:1"), 10, "not a base image"),
        ({}, ("--model-zoo", "https://192.168.0.1/zoo.git"), 2, "does not fetch from"),
        ({}, ("--label", "nothing"), 2, "NAME=VALUE"),
    ],
)
def test_a_refusal_has_an_exit_code(
    calling: Edl,
    docker_env: DockerEnvironment,
    zoo: str,
    environment: dict[str, str],
    arguments: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    named = tuple(each.replace("{registry}", docker_env.registry) for each in arguments)
    done = calling.run("zoo", "build", "--model-zoo", zoo, *named, env=environment)
    assert done.code == code, str(done)
    assert said in done.err
    assert "what to do" in done.err
    assert TOKEN not in done.err


def test_a_build_that_fails_shows_how(calling: Edl, zoo: str) -> None:
    (Path(zoo) / "requirements.txt").write_text("no-such-package-anywhere==0\n")
    done = calling.run("zoo", "build", "--model-zoo", zoo)
    assert done.code == 9, str(done)
    assert "no-such-package-anywhere" in done.err


def test_a_submitter_needs_no_engine(job_docker_env: DockerEnvironment, tmp_path: Path) -> None:
    """A container reads rows of PostgreSQL, builds an image by stubs, and runs jobs."""
    require(database_servers.missing())
    job = tmp_path / "job"
    job.mkdir()
    repository = f"{job_docker_env.registry}/sqlflow/{uuid.uuid4().hex[:8]}"
    image = job_base.make_submitter(job_docker_env)
    with (
        database_servers.postgresql() as database,
        serving(job_docker_env, tmp_path / "state") as service,
    ):
        url = database.url(password=None)
        tables = [sys.executable, str(SUBMITTER.with_name("tables.py")), "fill"]
        secret = {"PGPASSWORD": database_servers.PASSWORD}
        subprocess.run([*tables, url], env={**os.environ, **secret}, check=True)
        environment = {
            **secret,
            "SQLFLOW_DATABASE": url,
            "SQLFLOW_FOLDER": str(job),
            "SQLFLOW_BUILDER": service.address,
            "SQLFLOW_REPOSITORY": repository,
            "EDL_HOME": str(job / "home"),
        }
        mounts = [
            *(f"{place}:{place}" for place in (job, database.folder)),
            f"{ROOT}/model_zoo:/model_zoo:ro",
            f"{SUBMITTER.parent}:/examples:ro",
        ]
        code, output = _in_container(job_docker_env, image, environment, mounts)
    assert code == 0, output
    assert "90 predictions in testdata.predicted_salary" in output
    assert trained_model(job / "my_trained_model").docker_commit_id.startswith(f"{repository}@sha")
    assert len(read_all(job / "predictions.recordio")) == 90


def _in_container(
    docker_env: DockerEnvironment, image: str, environment: dict[str, str], mounts: list[str]
) -> tuple[int, str]:
    """Exit code and output of the submitter."""
    client = docker_env.client()
    with contextlib.closing(client):
        container = client.containers.run(
            image,
            ["python3", f"/examples/{SUBMITTER.name}"],
            environment=environment,
            volumes=mounts,
            network_mode="host",
            detach=True,
        )
        try:
            code = container.wait(timeout=600)["StatusCode"]
            return code, container.logs().decode()
        finally:
            container.remove(force=True)


def test_that_submitter_knows_what_is_public_alone() -> None:
    tree = ast.parse(SUBMITTER.read_text())
    modules = {
        name
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [str(node.module)]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    standard = {name for name in modules if name.partition(".")[0] in sys.stdlib_module_names}
    assert modules - standard == {"elasticdl", "grpc", "edl_proto.v1"}
