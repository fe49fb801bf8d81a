"""``python -m edl_worker check`` describes a model file and reports its errors."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from example_data import float_images
from google.protobuf import json_format
from zoo_folder import ZooFolder

import recordio
from edl_proto.errors import ErrorCode
from edl_proto.v1 import error_pb2, job_pb2
from edl_worker.codec.jobs import decode_model_reference
from edl_worker.core.job import ModelReference
from edl_worker.engines.tensorflow.framework import TensorFlow
from edl_worker.engines.tensorflow.model import check_model_file
from edl_worker.tasks import job_check
from elasticdl.python.common.constants import Mode

FIRST = ("dataset_fn", "loss", "optimizer", "eval_metrics_fn")


def run_check(path: Path) -> dict[str, Any]:
    return job_check.run_check(path, TensorFlow())


def spec(tmp_path: Path, zoo: ZooFolder, model_def: str, **more: Any) -> Path:
    job = job_pb2.JobSpec(name="checked", type=job_pb2.TRAIN, minibatch_size=8, **more)
    job.model.model_zoo, job.model.model_def = str(zoo.root), model_def
    path = tmp_path / "spec.json"
    path.write_text(json_format.MessageToJson(job))
    return path


@pytest.fixture
def images(tmp_path: Path) -> str:
    uri = str(tmp_path / "images.recordio")
    with recordio.Writer(uri) as writer:
        for record in float_images(16):
            writer.write(record)
    return uri


def test_a_correct_file_without_data(zoo: ZooFolder, tmp_path: Path) -> None:
    zoo.write_document_blocks("mnist.py", "contribution", "model_functional", *FIRST)
    assert run_check(spec(tmp_path, zoo, "mnist")) == {
        "ok": True,
        "form": "instance",
        "model": "mnist_model",
        "parameters": 111_114,
        "inputs": [{"name": "image", "shape": [28, 28], "dtype": "float32"}],
        "metrics": ["loss", "accuracy"],
        "strategy": "parameter-server",
        "search_space": [],
        "errors": [],
        "warnings": [],
    }


def test_data_shows_the_parameters_of_a_subclassed_model(
    zoo: ZooFolder, tmp_path: Path, images: str
) -> None:
    zoo.write_document_blocks("mnist.py", "contribution", "model_subclass", *FIRST)
    without = run_check(spec(tmp_path, zoo, "mnist"))
    assert (without["ok"], without["parameters"], without["inputs"]) == (True, None, None)
    answer = run_check(spec(tmp_path, zoo, "mnist", data=[images]))
    assert answer["ok"], answer["errors"]
    assert answer["parameters"] == run_check_of_functional(zoo, tmp_path)


def run_check_of_functional(zoo: ZooFolder, tmp_path: Path) -> int:
    zoo.write_document_blocks("other.py", "contribution", "model_functional", *FIRST)
    parameters: int = run_check(spec(tmp_path, zoo, "other"))["parameters"]
    return parameters


def test_data_shows_errors_that_the_file_alone_does_not(
    zoo: ZooFolder, tmp_path: Path, images: str
) -> None:
    path = zoo.write_document_blocks("mnist.py", "contribution", "model_functional", *FIRST)
    text = path.read_text().replace("shape=(28, 28), name", "shape=(32, 32), name")
    path.write_text(text.replace("Reshape((28, 28, 1))", "Reshape((32, 32, 1))"))
    assert run_check(spec(tmp_path, zoo, "mnist"))["ok"]
    answer = run_check(spec(tmp_path, zoo, "mnist", data=[images]))
    assert not answer["ok"]
    assert [error["code"] for error in answer["errors"]] == ["SHAPE_MISMATCH"]


def test_errors_are_wire_messages(zoo: ZooFolder, tmp_path: Path) -> None:
    zoo.write("mine.py", "model = tf.keras.Sequential([tf.keras.Input((2,))])")
    answer = run_check(spec(tmp_path, zoo, "mine"))
    assert (answer["ok"], answer["form"], answer["model"]) == (False, None, None)
    assert len(answer["errors"]) == 3
    for error in answer["errors"]:
        message = json_format.ParseDict(error, error_pb2.Error())
        assert message.code == ErrorCode.MODEL_CONTRACT
        assert message.what
        assert message.where
        assert message.remedy


@pytest.mark.parametrize("content", [None, "{", '{"nonsense": 1}'])
def test_an_unreadable_specification(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "spec.json"
    if content is not None:
        path.write_text(content)
    answer = run_check(path)
    assert not answer["ok"]
    assert [error["code"] for error in answer["errors"]] == ["USAGE"]


def test_the_command_prints_one_json_object(zoo: ZooFolder, tmp_path: Path, python: str) -> None:
    zoo.write("mine.py", "print('chatter')\nmodel = tf.foo")
    done = subprocess.run(
        [python, "-m", "edl_worker", "check", "--spec", str(spec(tmp_path, zoo, "mine"))],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    answer = json.loads(done.stdout)
    assert "chatter" in done.stderr
    assert [error["code"] for error in answer["errors"]] == ["MODEL_IMPORT"]


def test_check_with_a_sample(zoo: ZooFolder) -> None:
    zoo.write_document_blocks("mnist.py", "contribution", "model_subclass", *FIRST)
    reference = zoo.reference("mnist")
    assert check_model_file(reference) == []
    assert check_model_file(reference, sample=float_images(4)) == []
    (error,) = check_model_file(reference, sample=[b"no example"])
    assert error.code == ErrorCode.SHAPE_MISMATCH
    assert check_model_file(reference, purpose=Mode.PREDICTION, sample=float_images(4)) == []


def test_a_model_reference_is_read_from_the_wire() -> None:
    fields = job_pb2.ModelSpec.DESCRIPTOR.fields
    texts = [field.name for field in fields if field.type == field.TYPE_STRING]
    assert len(texts) == len(fields) - 2, "all but the code and the learning rate"
    message = job_pb2.ModelSpec(**{name: f"the {name}" for name in texts})
    reference = decode_model_reference(message)
    assert reference.learning_rate is None
    message.learning_rate = 0.0
    assert decode_model_reference(message).learning_rate == 0.0
    for name in texts:
        assert getattr(reference, name) == f"the {name}"
    assert ModelReference("zoo", "a.b").params == ""
