"""Trained models of others: what they name, and what they link to."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from edl.adapters import image_record, trained_models
from edl.core.options import Given, Verb
from edl.core.submission import Submission, build
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import model_pb2

IMAGE = "evil.example.com/x@sha256:" + 64 * "a"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    place = tmp_path / "model"
    (place / "model_zoo").mkdir(parents=True)
    (place / "model_zoo" / "m.py").write_text("x = 1\n")
    describe(place)
    return place


def describe(place: Path, **fields: str) -> None:
    message = model_pb2.TrainedModel(model_def="m", **fields)
    (place / "trained_model.pb").write_bytes(message.SerializeToString())


def prediction(place: Path, **options: object) -> Submission:
    given = {"trained_model": str(place), "data": "d", "output": "o", **options}
    values = {name: Given(value, name) for name, value in given.items()}
    return build(Verb.PREDICT, values, cwd="/", environ={})


def refusal(job: Submission) -> EdlError:
    with pytest.raises(EdlError) as refused:
        trained_models.check(job)
    assert refused.value.code == ErrorCode.FORBIDDEN
    return refused.value


@pytest.mark.parametrize("zoo", ["../../..", "/home", "zoo", "model_zoo/..", "./model_zoo"])
def test_a_model_zoo_is_the_model_s_own_copy_or_nothing(model: Path, zoo: str) -> None:
    trained_models.check(prediction(model))
    describe(model, model_zoo=zoo)
    for trusts in (False, True):
        assert repr(zoo) in refusal(prediction(model, trust_model=trusts)).what


def test_a_link_that_leads_out_of_the_model_zoo_is_refused(model: Path, tmp_path: Path) -> None:
    (tmp_path / "id_rsa").write_text("secret")
    (model / "model_zoo" / "same.py").symlink_to("m.py")
    trained_models.check(prediction(model))
    (model / "model_zoo" / "weights.txt").symlink_to(tmp_path / "id_rsa")
    assert "weights.txt" in refusal(prediction(model, trust_model=True)).where
    (model / "model_zoo" / "weights.txt").unlink()
    (model / "model_zoo").rename(model / "elsewhere")
    (model / "model_zoo").symlink_to(tmp_path)
    refusal(prediction(model, trust_model=True))


def test_the_image_of_a_model_runs_only_where_it_is_trusted(model: Path) -> None:
    describe(model, docker_commit_id=IMAGE)
    trained_models.check(prediction(model))  # in no image at all
    docker = prediction(model, platform="docker")
    assert IMAGE in refusal(docker).what
    trained_models.check(replace(docker, trust_model=True))
    trained_models.check(replace(docker, trusted_images=("evil.example.com",)))
    trained_models.check(replace(docker, repository="evil.example.com/x"))
    trained_models.check(replace(docker, image="registry.example.com/mine@sha256:" + 64 * "b"))


def test_an_image_that_a_job_of_the_user_has_run_in_is_trusted(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDL_HOME", str(tmp_path / "home"))
    describe(model, docker_commit_id=IMAGE)
    docker = prediction(model, platform="docker")
    image_record.add("evil.example.com/x@sha256:" + 64 * "b")
    assert IMAGE in refusal(docker).what
    for _ in range(2):
        image_record.add(IMAGE)
    trained_models.check(docker)
    assert len((tmp_path / "home" / "images").read_text().splitlines()) == 2


def test_the_code_of_another_user_runs_only_where_it_is_trusted(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = (model / "model_zoo" / "m.py").stat().st_uid or 4711
    if os.getuid() == 0:
        os.chown(model / "model_zoo" / "m.py", owner, owner)
    user = SimpleNamespace(getuid=lambda: owner + 1)
    monkeypatch.setattr(trained_models.os, "getuid", user.getuid)
    assert f"number {owner}" in refusal(prediction(model)).what
    trained_models.check(prediction(model, trust_model=True))
    monkeypatch.setattr(trained_models.os, "getuid", lambda: 0)
    monkeypatch.setenv("SUDO_UID", str(owner))
    trained_models.check(prediction(model))
