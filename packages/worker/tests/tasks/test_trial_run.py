"""Before the first task, a worker does once what its tasks will do, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import Master, Start, training
from google.protobuf import json_format
from model_files import LOSS, MODEL, REST
from trial_jobs import load, refusal, write_rows
from zoo_folder import ZooFolder

from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import error_pb2, job_pb2
from edl_worker.engines.tensorflow.framework import TensorFlow
from edl_worker.model_file.errors import ContractErrors
from edl_worker.tasks.job_check import run_check
from edl_worker.tasks.trial_run import run_trial, run_trial_at_start

TABLE = """
class Net(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.rows = tf.keras.layers.Embedding(50, 4)
        self.dense = tf.keras.layers.Dense(1)
        self.drop = tf.keras.layers.Dropout(0.5)
        self.norm = tf.keras.layers.BatchNormalization()
    def call(self, x, training=False):
        ids = tf.cast(x["x"][:, 0] * 40.0, tf.int64)
        rows = self.drop(self.rows(ids), training=training)
        return self.dense(self.norm(rows, training=training))
model = Net()
"""


@pytest.fixture
def data(tmp_path: Path) -> str:
    return write_rows(tmp_path / "data.recordio")


@pytest.mark.parametrize("training", [{}, {"local_steps": 2}, {"embedding_threshold": 1}])
def test_a_trial_run_changes_nothing(zoo: ZooFolder, data: str, training: dict[str, int]) -> None:
    loaded = load(zoo, data, REST + LOSS + TABLE, **training)
    before = [(v.path, v.numpy()) for v in loaded.engine.source.model.variables]
    run_trial(loaded)
    for (path, value), variable in zip(before, loaded.engine.source.model.variables, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value, path)
    assert loaded.infer.rows is None


def test_a_model_that_training_cannot_change(zoo: ZooFolder, data: str) -> None:
    with pytest.raises(EdlError, match="no trainable variables") as caught:
        load(zoo, data, REST + LOSS + MODEL + "\nmodel.trainable = False\n")
    assert caught.value.code == ErrorCode.MODEL_CONTRACT
    assert ".py" in caught.value.where


@pytest.mark.parametrize("local_steps", [1, 2])
def test_a_loss_that_is_no_number_on_real_records(
    zoo: ZooFolder, data: str, local_steps: int
) -> None:
    source = (
        REST
        + MODEL
        + """
def loss(labels, predictions):
    return tf.reduce_mean(tf.math.log(labels - 100.0) * predictions)
"""
    )
    error = refusal(zoo, data, source, local_steps=local_steps)
    assert error.code == ErrorCode.NAN_LOSS
    assert "the loss is nan" in error.what
    assert "mine.py" in error.where
    assert data in error.where


def test_a_gradient_that_is_no_number_though_the_loss_is_one(zoo: ZooFolder, data: str) -> None:
    source = (
        REST
        + MODEL
        + """
def loss(labels, predictions):
    return tf.reduce_mean(tf.sqrt(predictions * 0.0))
"""
    )
    error = refusal(zoo, data, source)
    assert error.code == ErrorCode.NAN_LOSS
    assert "gradient" in error.what


def test_texts_that_are_no_numbers(zoo: ZooFolder, data: str) -> None:
    source = REST.replace('return {"x": r["x"]}', 'return {"x": tf.strings.as_string(r["x"])}')
    error = refusal(zoo, data, source + LOSS + MODEL)
    assert error.code == ErrorCode.SHAPE_MISMATCH
    assert "the feature x has the type string, and the model's input" in error.what
    assert len(error.detail.splitlines()) < 10


@pytest.mark.parametrize(
    ("value", "shapes"),
    [
        ("tf.square(labels[:, 0] - predictions)", ["(4, 4)", "(8, 8)"]),  # broadcast
        ("tf.reduce_sum(tf.square(labels - predictions) * [[1.0, 2.0, 3.0]], 0)", ["(3,)"]),
    ],
)
def test_a_loss_of_a_shape_that_fits_no_examples(
    zoo: ZooFolder, data: str, value: str, shapes: list[str]
) -> None:
    with pytest.raises(ContractErrors) as caught:
        load(zoo, data, f"{REST}{MODEL}\ndef loss(labels, predictions):\n    return {value}\n")
    (error,) = caught.value.errors
    assert error.code == ErrorCode.SHAPE_MISMATCH
    for shape in shapes:
        assert shape in error.what
    assert "mine.py" in error.where


FLAT = REST.replace('r["y"]\n', 'r["y"][0]\n')
OWN_LOSS = """
class Own(tf.keras.losses.Loss):
    def call(self, y_true, y_pred):
        return tf.reduce_mean(tf.square(y_true - y_pred), -1)
loss = Own()
"""


@pytest.mark.parametrize(
    "loss",
    [
        "tf.reduce_mean(tf.square(labels - predictions))",
        "tf.reduce_sum(tf.abs(labels - predictions))",
        "tf.reduce_mean(tf.square(labels - predictions), axis=-1)",
        "-tf.reduce_mean(labels * tf.math.log(predictions))",
        "",
    ],
)
def test_a_loss_that_broadcasts_labels_against_outputs(
    zoo: ZooFolder, data: str, loss: str
) -> None:
    own = f"\ndef loss(labels, predictions):\n    return {loss}\n" if loss else OWN_LOSS
    with pytest.raises(ContractErrors) as caught:
        load(zoo, data, FLAT + MODEL + own)
    (error,) = caught.value.errors
    assert error.code == ErrorCode.SHAPE_MISMATCH
    assert "labels (n,) and outputs (n, 1) to (n, n)" in error.what
    assert "mine.py" in error.where
    assert "reshape" in error.remedy
    load(zoo, data, REST + MODEL + own)


@pytest.mark.parametrize(
    "loss",
    [
        "tf.reduce_mean(tf.square(labels - predictions[:, 0]))",
        "tf.reduce_mean(tf.square(labels[:, None] - predictions))",
        "tf.reduce_mean(tf.keras.losses.mse(labels, predictions))",
        "tf.keras.losses.BinaryCrossentropy(from_logits=True)(labels, predictions)",
        "-tf.reduce_mean(labels * tf.math.log(predictions[:, 0]))",
        "tf.reduce_mean(predictions)",
        "tf.reduce_mean((labels[:, None] - labels) * (predictions - tf.transpose(predictions)))",
    ],
)
def test_a_loss_of_the_same_shapes_that_does_not_broadcast(
    zoo: ZooFolder, data: str, loss: str
) -> None:
    load(zoo, data, f"{FLAT}{MODEL}\ndef loss(labels, predictions):\n    return {loss}\n")


def test_a_metric_that_broadcasts_labels_against_outputs(zoo: ZooFolder, data: str) -> None:
    metric = """
def eval_metrics_fn(labels, predictions):
    return {"hits": tf.equal(tf.round(predictions), tf.round(labels))}
"""
    with pytest.raises(ContractErrors, match="the metric hits compares each label"):
        load(zoo, data, FLAT + MODEL + 'loss = "mse"\n' + metric)
    single = metric.replace("round(predictions)", "round(predictions[:, 0])")
    load(zoo, data, FLAT + MODEL + 'loss = "mse"\n' + single)
    # Probabilities do not show what this one does, and logits do.
    logits = metric.replace(
        "tf.round(predictions), tf.round(labels)", "predictions[:, 0] > 0, labels > 0"
    )
    load(zoo, data, FLAT + MODEL + 'loss = "mse"\n' + logits)


@pytest.mark.parametrize(
    "value",
    [
        # Files for ElasticDL have this one.
        "tf.equal(tf.argmax(predictions, 1, output_type=tf.int32), tf.cast(labels, tf.int32))",
        "tf.reduce_mean(predictions) / tf.reduce_mean(labels)",
        "labels",
    ],
    ids=["argmax of one output", "means", "labels alone"],
)
def test_a_metric_that_compares_no_pairs_is_accepted(zoo: ZooFolder, data: str, value: str) -> None:
    metric = f"""
def eval_metrics_fn():
    return {{"mine": lambda labels, predictions: {value}}}
"""
    load(zoo, data, FLAT + MODEL + 'loss = "mse"\n' + metric)


@pytest.mark.parametrize("value", ["tf.reshape(e, [-1])", "tf.tile(e, [1, 5])", "tf.transpose(e)"])
def test_a_loss_of_other_shapes_is_accepted(zoo: ZooFolder, data: str, value: str) -> None:
    source = f"\ndef loss(labels, predictions):\n    e = labels - predictions\n    return {value}\n"
    load(zoo, data, REST + MODEL + source)


def test_at_the_start_a_few_examples_are_enough(
    zoo: ZooFolder, data: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="edl_worker.tasks.trial_run")
    run_trial_at_start(load(zoo, data, REST + LOSS + MODEL, minibatch_size=16))
    assert "trial run with 8 examples" in caplog.text


def test_a_model_may_need_minibatches_of_one_size(zoo: ZooFolder, data: str) -> None:
    model = """
class Net(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = tf.keras.layers.Dense(1)
    def call(self, x):
        return self.dense(tf.reshape(x["x"], [16, 2]))
model = Net()
"""
    mean = "\ndef loss(labels, predictions):\n    return tf.reduce_mean(predictions)\n"
    run_trial_at_start(load(zoo, data, REST + model + mean, minibatch_size=16))


def test_what_another_attempt_may_not_meet_is_left_to_tasks(
    zoo: ZooFolder, data: str, caplog: pytest.LogCaptureFixture
) -> None:
    source = (
        REST
        + MODEL
        + """
def loss(labels, predictions):
    def fail():
        raise RuntimeError("out of luck")
    return tf.reduce_mean(tf.square(labels - predictions)) + tf.py_function(
        lambda: 0.0 if tf.inside_build else fail(), [], tf.float32)
tf.inside_build = True
"""
    )
    loaded = load(zoo, data, source)
    tf.inside_build = False
    with pytest.raises(ContractErrors, match="out of luck"):
        run_trial(loaded)
    run_trial_at_start(loaded)
    assert "the tasks will try again" in caplog.text


# --- the check of a job and its start ----------------------------------------------------------

UNTRAINED = REST + LOSS + MODEL + "\nmodel.trainable = False\n"
TEXTS = REST.replace('{"x": r["x"]}', '{"x": tf.strings.as_string(r["x"])}') + LOSS + MODEL
LOGARITHM = f"""{REST}{MODEL}
def loss(labels, predictions):
    return tf.reduce_mean(tf.math.log(labels - 100.0) * predictions)
"""
THREE_NUMBERS = f"""{REST}{MODEL}
def loss(labels, predictions):
    return tf.reduce_sum(tf.square(labels - predictions) * [[1.0, 2.0, 3.0]], 0)
"""
SPARSE_FEATURES = REST.replace('{"x": r["x"]}', '{"x": tf.sparse.from_dense(r["x"])}')
NEEDS_DENSE = """
class Net(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = tf.keras.layers.Dense(1)
    def call(self, inputs):
        return self.dense(tf.reshape(inputs["x"], [-1, 2]))
model = Net()
"""
TAKES_SPARSE = MODEL.replace('name="x"', 'name="x", sparse=True')


@pytest.fixture
def job_of(job: job_pb2.JobSpec, zoo: ZooFolder, data: str) -> Callable[[str], job_pb2.JobSpec]:
    """A job that trains a model file on ``data``."""

    def of(source: str) -> job_pb2.JobSpec:
        zoo.write("mine.py", source)
        job.model.model_zoo, job.model.model_def, job.data[:] = str(zoo.root), "mine", [data]
        return job

    return of


def check(job: job_pb2.JobSpec, tmp_path: Path) -> dict[str, Any]:
    """Return the answer of ``edl zoo check`` for a job."""
    path = tmp_path / "spec.json"
    path.write_text(json_format.MessageToJson(job))
    return run_check(path, TensorFlow())


@pytest.fixture(params=["check", "start"])
def refusals(
    request: pytest.FixtureRequest, tmp_path: Path, start_master: Master, start_worker: Start
) -> Callable[[job_pb2.JobSpec], list[error_pb2.Error]]:
    """Why the check of a job refuses it, or its first worker before it asks for a task."""

    def by_check(job: job_pb2.JobSpec) -> list[error_pb2.Error]:
        errors = check(job, tmp_path)["errors"]
        return [json_format.ParseDict(error, error_pb2.Error()) for error in errors]

    def by_start(job: job_pb2.JobSpec) -> list[error_pb2.Error]:
        master = start_master(job, [[training(Path(job.data[0]), 0, 16)]])
        code = start_worker(master).wait()
        failed = master.received.failed
        assert not any(each.HasField("lease") for each in failed), "a task failed"
        assert code == (1 if failed else 0)
        return [each.error for each in failed]

    return by_check if request.param == "check" else by_start


@pytest.mark.parametrize(
    ("source", "code", "what"),
    [
        (UNTRAINED, ErrorCode.MODEL_CONTRACT, "no trainable variables"),
        (TEXTS, ErrorCode.SHAPE_MISMATCH, "the feature x has the type string"),
        (LOGARITHM, ErrorCode.NAN_LOSS, "the loss is nan for the first records of the data"),
        (THREE_NUMBERS, ErrorCode.SHAPE_MISMATCH, "(3,)"),
        (SPARSE_FEATURES + LOSS + NEEDS_DENSE, ErrorCode.MODEL_CONTRACT, "SparseTensor"),
    ],
    ids=["no weights to train", "texts", "no number", "shape of the loss", "sparse features"],
)
def test_the_check_of_a_job_and_its_start_refuse_the_same(
    job_of: Callable[[str], job_pb2.JobSpec],
    refusals: Callable[[job_pb2.JobSpec], list[error_pb2.Error]],
    source: str,
    code: ErrorCode,
    what: str,
) -> None:
    (error,) = refusals(job_of(source))
    assert (error.code, what in error.what) == (code, True), error
    assert error.where
    assert error.remedy


def test_the_check_of_a_job_and_its_start_accept_sparse_features(
    job_of: Callable[[str], job_pb2.JobSpec],
    refusals: Callable[[job_pb2.JobSpec], list[error_pb2.Error]],
) -> None:
    assert refusals(job_of(SPARSE_FEATURES + LOSS + TAKES_SPARSE)) == []


def test_the_check_of_a_job_tells_which_metrics_are_no_numbers(
    job_of: Callable[[str], job_pb2.JobSpec], tmp_path: Path
) -> None:
    metrics = "metrics = {'bad': lambda labels, outputs: outputs * np.nan, 'good': 'mae'}\n"
    answer = check(job_of(REST + LOSS + MODEL + metrics), tmp_path)
    assert answer["ok"], answer["errors"]
    assert answer["warnings"] == ["the metric bad is nan for the first records of the data"]


def test_the_check_of_a_job_tells_what_its_trained_model_will_lack(
    job_of: Callable[[str], job_pb2.JobSpec], tmp_path: Path
) -> None:
    """The SavedModel is traced for minibatches of any size, which no step of a job is."""
    job = job_of(f"""{REST}{LOSS}
class Net(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = tf.keras.layers.Dense(1)
    def call(self, inputs):
        if inputs["x"].shape[0] is None:
            raise ValueError("of no known size")
        return self.dense(inputs["x"])
    def get_config(self):
        raise NotImplementedError("no config, sorry")
model = Net()
""")
    answer = check(job, tmp_path)
    assert answer["ok"], answer["errors"]
    keras, serving = answer["warnings"]
    assert "no model.keras" in keras
    assert "no config, sorry" in keras
    assert "no SavedModel" in serving
    assert "of no known size" in serving


def test_only_the_check_of_a_job_knows_that_it_has_no_validation_data(
    job_of: Callable[[str], job_pb2.JobSpec], tmp_path: Path
) -> None:
    job = job_of(REST + LOSS + MODEL + "\ncallbacks = [tf.keras.callbacks.EarlyStopping()]\n")
    job.output = ""
    assert not check(job, tmp_path)["errors"]
    job.output = str(tmp_path / "out")
    (error,) = check(job, tmp_path)["errors"]
    assert "monitors 'val_loss'" in error["what"]
    assert "Give the job --validation-data" in error["remedy"]
