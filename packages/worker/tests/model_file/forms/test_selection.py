"""Every form of a model file gives the same strict description."""

from __future__ import annotations

import ast
from pathlib import Path

import keras
import numpy as np
import pytest
from model_files import LOSS, MODEL, REST, rows
from plain_loop import in_blocks
from zoo_folder import ZooFolder

import edl_worker
from edl_worker.engines.tensorflow.model.loader import describe_model_file
from edl_worker.model_file.forms.selection import FORMS
from edl_worker.model_file.input_pipeline import MinibatchRequest
from elasticdl.python.common.constants import Mode

METRICS = """
def eval_metrics_fn():
    return {"error": tf.keras.metrics.MeanAbsoluteError()}
"""
CLASS = """
class Net(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = tf.keras.layers.Dense(1)
    def call(self, x):
        return self.dense(x)
    @staticmethod
    def default_input(dataset, mode):
        return dataset_fn(dataset, mode)
    def default_loss(self, predictions, labels):
        return loss(labels, predictions)
    @classmethod
    def default_optimizer(cls, lr=0.1):
        return optimizer(lr)
    @staticmethod
    def default_metrics():
        return eval_metrics_fn()
"""
FUNCTION = """
def custom_model():
    inputs = tf.keras.Input((2,), name="x")
    return tf.keras.Model(inputs, tf.keras.layers.Dense(1)(inputs))
"""
SPECIFICATION = """
class Spec(ElasticDLSpec):
    def create_model(self):
        inputs = tf.keras.Input((2,), name="x")
        return tf.keras.Model(inputs, tf.keras.layers.Dense(1)(inputs))
    def create_optimizer(self, lr=0.1):
        return optimizer(lr)
    def create_loss(self, outputs=None, labels=None):
        return loss(labels, outputs)
    def create_dataset(self, dataset, mode):
        return dataset_fn(dataset, mode)
    def create_metrics(self, mode=None, outputs=None, labels=None):
        return eval_metrics_fn()
"""
SOURCES = {"instance": MODEL, "class": CLASS, "function": FUNCTION, "spec": SPECIFICATION}
LABELS = np.array([[1.0], [0.0], [3.0]], np.float32)
OUTPUTS = np.array([[0.5], [2.0], [3.0]], np.float32)


def test_these_are_all_forms() -> None:
    assert {form.form for form in FORMS} == set(SOURCES)


@pytest.mark.parametrize("form", SOURCES)
def test_every_form_gives_the_same_description(zoo: ZooFolder, form: str) -> None:
    zoo.write("mine.py", SOURCES[form] + REST + LOSS + METRICS)
    described = describe_model_file(
        zoo.reference("mine"), context=None, purpose=Mode.TRAINING, seed=1
    )
    assert described.form == form
    assert f"{zoo.root}/mine.py" in described.place
    assert isinstance(described.model, keras.Model)
    assert isinstance(described.optimizer, keras.optimizers.SGD)
    assert described.loss is not None
    loss = described.loss.function(outputs=OUTPUTS, labels=LABELS)
    np.testing.assert_allclose(loss, (LABELS - OUTPUTS) ** 2)
    metrics = {
        **described.metrics.keras_metrics,
        **described.metrics.batch_values(outputs=OUTPUTS, labels=LABELS),
    }
    assert list(metrics) == ["error"]
    assert isinstance(metrics["error"], keras.metrics.MeanAbsoluteError)
    request = MinibatchRequest(in_blocks(rows(8)), Mode.TRAINING, 8, 3, 0, ())
    (batch,) = described.input_pipeline.batches(request)
    assert (batch.features["x"].shape, batch.labels.shape) == ((8, 2), (8, 1))
    assert described.feature_mapper(batch.features, training=False).shape == (8, 1)


@pytest.mark.parametrize(
    ("purpose", "lacks"),
    [
        (Mode.TRAINING, set()),
        (Mode.EVALUATION, {"optimizer"}),
        (Mode.PREDICTION, {"optimizer", "loss"}),
    ],
)
def test_a_description_lacks_only_what_its_purpose_does_not_need(
    zoo: ZooFolder, purpose: Mode, lacks: set[str]
) -> None:
    zoo.write("mine.py", MODEL + REST + LOSS)
    described = describe_model_file(zoo.reference("mine"), context=None, purpose=purpose, seed=1)
    found = {name for name in described.__slots__ if getattr(described, name) is None}
    assert found == lacks | {"custom_train_step", "refused_optimizer"}


def test_no_module_outside_the_forms_distinguishes_forms() -> None:
    package = Path(edl_worker.__file__).parent
    classes, names = {form.__name__ for form in FORMS}, {form.form for form in FORMS}
    paths = [*package.glob("model_file/**/*.py"), *package.glob("engines/**/*.py")]
    for path in paths:
        nodes = [] if path.parent.name == "forms" else list(ast.walk(ast.parse(path.read_text())))
        used = {node.id for node in nodes if isinstance(node, ast.Name)}
        compared = {
            operand.value
            for node in nodes
            if isinstance(node, ast.Compare)
            for operand in (node.left, *node.comparators)
            if isinstance(operand, ast.Constant)
        }
        assert not used & classes, path
        assert not compared & names, path
