"""The documents' two command lines, word for word, in containers: data and results in stores."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import ROOT, Edl, eventually
from store_servers import GoogleServer, S3Server, StoreServer
from test_stores import BUCKET, FILES, PREDICT, RECORDS, TRAIN, write_credits

import recordio
from edl_proto.v1 import model_pb2

from . import job_base
from .docker_environment import DockerEnvironment

SECRET = "a-secret-that-must-not-be-written"


@pytest.fixture(params=[GoogleServer, S3Server], ids=["gs", "s3"])
def server(request: pytest.FixtureRequest) -> Iterator[StoreServer]:
    make: Callable[[str], StoreServer] = request.param
    server = make(BUCKET)
    yield server
    server.stop()


def test_the_documents_command_lines_in_containers(
    job_docker_env: DockerEnvironment, in_containers: Edl, tmp_path: Path, server: StoreServer
) -> None:
    edl = in_containers
    for folder in ("train", "test"):
        write_credits(server, f"tony/imagenet/{folder}", tmp_path)
    shutil.copytree(ROOT / "tests" / "seeds" / "fintech", tmp_path / "work" / "fintech")
    edl.env |= {"HOME": str(tmp_path), **server.environment}
    edl.env["EDL_BASE_IMAGE"] = job_base.make_with_stores(job_docker_env)
    if "AWS_SECRET_ACCESS_KEY" in server.environment:
        edl.env["AWS_SECRET_ACCESS_KEY"] = SECRET
    for lines in (TRAIN, PREDICT):
        edl.shell(lines.replace("gs://", f"{server.scheme}://"), cwd=tmp_path, timeout=900)

    there = server.system.find(f"{BUCKET}/tony")
    trained = model_pb2.TrainedModel.FromString(
        server.system.cat_file(f"{BUCKET}/tony/my_trained_model/trained_model.pb")
    )
    assert trained.records_trained == FILES * RECORDS
    assert trained.docker_commit_id.startswith(f"{edl.env['EDL_REPOSITORY']}@sha256:")
    for number in range(FILES):
        predictions = tmp_path / f"predictions-{number}"
        server.system.get_file(f"{BUCKET}/tony/imagenet-eval/{number}.recordio", str(predictions))
        assert recordio.open_source(str(predictions)).count() == RECORDS
    assert not [path for path in there if ".tmp" in path or "/." in path]
    eventually(lambda: not list(edl.home.glob("jobs/*/stores")), "credentials are removed")
    written = [path for path in edl.home.rglob("*") if path.is_file() and not path.is_symlink()]
    assert written
    assert not [path for path in written if SECRET.encode() in path.read_bytes()]
