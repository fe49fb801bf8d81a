"""Trained models of others: what they name, and what they link to."""

from __future__ import annotations

import os
import subprocess
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


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../other/parameters.safetensors", "..", ".", "a/b", "x\0y"]
)
@pytest.mark.parametrize("field", ["params_filename", "keras_filename"])
def test_a_description_names_only_files_of_the_model(model: Path, field: str, name: str) -> None:
    describe(model, **{field: name})
    for trusts in (False, True):
        assert "leads out of it" in refusal(prediction(model, trust_model=trusts)).what


@pytest.mark.parametrize("kind", ["link", "pipe", "device", "folder"])
def test_the_values_of_a_model_are_a_file_of_its_own(
    model: Path, tmp_path: Path, kind: str
) -> None:
    """A worker would wait for a pipe for ever, and a link may lead to another model's values."""
    other = tmp_path / "other.safetensors"
    other.write_bytes(b"secret")
    values = model / "parameters.safetensors"
    match kind:
        case "link":
            values.symlink_to(other)
        case "pipe":
            os.mkfifo(values)
        case "device":
            values.symlink_to("/dev/zero")
        case "folder":
            values.mkdir()
    refusal(prediction(model, trust_model=True))
    with pytest.raises(EdlError) as refused:
        trained_models.check_initial_values(str(model))
    assert refused.value.code == ErrorCode.FORBIDDEN


@pytest.mark.parametrize("name", ["m.keras", "m.h5", "m.weights.h5", "m.safetensors", "m"])
def test_training_begins_with_a_file_of_values_or_a_folder_with_one(
    tmp_path: Path, name: str
) -> None:
    place = tmp_path / name
    with pytest.raises(EdlError, match="does not exist") as refused:
        trained_models.check_initial_values(str(place))
    assert refused.value.code == ErrorCode.MODEL_NOT_FOUND
    (tmp_path / "as-folder" / name).mkdir(parents=True)
    with pytest.raises(EdlError, match=r"has neither trained_model\.pb nor model\.keras"):
        trained_models.check_initial_values(str(tmp_path / "as-folder" / name))
    (tmp_path / "as-folder" / name / "model.keras").touch()
    trained_models.check_initial_values(str(tmp_path / "as-folder" / name))
    place.touch()
    if place.suffix:
        trained_models.check_initial_values(str(place))
        place.unlink()
        os.mkfifo(place)
    with pytest.raises(EdlError, match="no file of values"):
        trained_models.check_initial_values(str(place))


def test_a_folder_with_the_name_of_a_file_is_a_trained_model(tmp_path: Path) -> None:
    model = tmp_path / "m.keras"
    model.mkdir()
    describe(model)
    (model / "parameters.safetensors").symlink_to(tmp_path)
    with pytest.raises(EdlError, match="refused"):
        trained_models.check_initial_values(str(model))


def test_values_that_a_link_of_the_model_leads_to_are_its_own(model: Path) -> None:
    (model / "version-1.safetensors").write_bytes(b"")
    (model / "parameters.safetensors").symlink_to("version-1.safetensors")
    trained_models.check(prediction(model))


@pytest.mark.parametrize("size", [2 << 20, 1 << 40])
def test_a_description_of_any_size_is_not_read(model: Path, size: int) -> None:
    os.truncate(model / "trained_model.pb", size)
    with pytest.raises(EdlError) as refused:
        trained_models.read(str(model))
    assert refused.value.code == ErrorCode.MODEL_NOT_FOUND
    assert f"{size} bytes" in refused.value.what


@pytest.mark.parametrize("field", ["model_def", "docker_commit_id", "dataset_fn", "job"])
def test_a_name_of_any_length_is_no_name(model: Path, field: str) -> None:
    message = model_pb2.TrainedModel(model_def="m", model_def_params="a" * 5000)
    (model / "trained_model.pb").write_bytes(message.SerializeToString())
    trained_models.check(prediction(model))
    setattr(message, field, "\x1b" + "x" * 100_000)
    (model / "trained_model.pb").write_bytes(message.SerializeToString())
    assert len(refusal(prediction(model, trust_model=True)).what) < 200


def test_a_model_zoo_of_any_depth_is_refused(model: Path) -> None:
    at = os.open(model / "model_zoo", os.O_RDONLY)
    for _ in range(3000):  # deeper than Python recurses, and than a path is long
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    try:
        assert "its model zoo nests over" in refusal(prediction(model, trust_model=True)).what
    finally:
        subprocess.run(["rm", "-rf", model / "model_zoo"], check=True)  # pytest would recurse


def test_a_tracker_gets_no_file_of_the_user(model: Path, tmp_path: Path) -> None:
    """The writer of a model, such as the code in a container, could name one by a link."""
    (tmp_path / "id_rsa").write_text("secret")
    describe(model, keras_filename="model.keras")
    (model / "model.keras").symlink_to(tmp_path / "id_rsa")
    with pytest.raises(EdlError) as refused, trained_models.open_keras_model(str(model)):
        pass
    assert refused.value.code == ErrorCode.FORBIDDEN
    (model / "model.keras").unlink()
    (model / "model.keras").write_bytes(b"keras")
    with trained_models.open_keras_model(str(model)) as opened:
        assert opened.file.read_bytes() == b"keras"
