"""Models, optimizers and metrics of Keras 2: of tf_keras, and of the parts in TensorFlow."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from elasticdl_definitions import load_and_train
from model_files import LOSS, REST, rows
from plain_loop import batches, evaluate
from zoo_folder import ZooFolder

from edl_worker.model_file.errors import ContractErrors
from edl_worker.model_file.zoo.compatibility import to_keras_3
from elasticdl.python.common.constants import Mode

DEFINITIONS = """
def custom_model():
    inputs = Input((2,), name="x")
    hidden = layers.Dense(3, kernel_regularizer="l2")(inputs)
    outputs = layers.Dense(1)(layers.Dropout(0.1)(hidden))
    return models.Model(inputs, outputs, name="old")

def optimizer(lr=0.1):
    return optimizers.SGD(lr, momentum=0.5)

def eval_metrics_fn():
    return {"mae": metrics.MeanAbsoluteError(), "mse": metrics.MeanSquaredError}
"""
TF_KERAS = "from tf_keras import Input, layers, metrics, models, optimizers\n" + DEFINITIONS
# By importlib: a statement that imports these modules gets those of Keras 3.
IN_TENSORFLOW = (
    """
import importlib

def old(module):
    return importlib.import_module("tensorflow.python.keras." + module)

Input = old("engine.input_layer").Input
layers, metrics, models = old("layers.core"), old("metrics"), old("models")
optimizers = old("optimizer_v2.gradient_descent")
"""
    + DEFINITIONS
)
both = pytest.mark.parametrize("source", [TF_KERAS, IN_TENSORFLOW])


@both
def test_models_are_accepted(zoo: ZooFolder, source: str) -> None:
    model_file = load_and_train(zoo, REST + LOSS + source, rows(16))
    assert isinstance(model_file.optimizer, keras.optimizers.SGD)
    assert model_file.optimizer.momentum == 0.5
    names = [w.name for w in model_file.model.trainable_variables]
    assert names == ["0_kernel", "1_bias", "2_kernel", "3_bias"]
    # Training and evaluation use the same variables as the wrapped model.
    (layer,) = [each for each in model_file.model.layers if hasattr(each, "wrapped")]
    (batch,) = batches(model_file, rows(16), mode=Mode.EVALUATION)
    expected = layer.wrapped(batch.features["x"])
    np.testing.assert_allclose(model_file.call(batch.features, training=False), expected)
    error = np.asarray(expected) - np.asarray(batch.labels)
    found = evaluate(model_file, rows(16), size=5)
    assert found["mae"] == pytest.approx(np.abs(error).mean(), rel=1e-5)
    assert found["mse"] == pytest.approx((error**2).mean(), rel=1e-5)
    assert len(model_file.model.losses) == 1
    again = zoo.load("mine")
    assert [w.path for w in again.model.variables] == [w.path for w in model_file.model.variables]


@pytest.mark.parametrize("module", ["tf_keras.", "tensorflow.python.keras."])
def test_the_model_is_one_of_the_package_that_the_file_names(zoo: ZooFolder, module: str) -> None:
    zoo.write("mine.py", REST + LOSS + (TF_KERAS if "tf_" in module else IN_TENSORFLOW))
    (layer,) = [each for each in zoo.load("mine").model.layers if hasattr(each, "wrapped")]
    assert type(layer.wrapped).__module__.startswith(module)


def train(optimizer: Any, variable: Any) -> Any:
    """The variable after a dozen updates, all with gradients of their own."""
    for step in range(12):
        gradient = tf.constant([1.0 + step % 3, -0.3 * (step % 2)])
        optimizer.apply_gradients([(gradient, variable)])
    return variable


@pytest.mark.parametrize(
    "rate",
    [
        'old("optimizer_v2.learning_rate_schedule").ExponentialDecay(0.2, 5, 0.5)',
        'old("optimizer_v2.learning_rate_schedule").CosineDecay(0.2, 20)',
        "0.2, decay=0.5",
    ],
)
def test_an_optimizer_in_tensorflow_keeps_its_learning_rate(zoo: ZooFolder, rate: str) -> None:
    zoo.write("mine.py", REST + LOSS + IN_TENSORFLOW.replace("SGD(lr,", f"SGD({rate},"))
    optimizer = zoo.load("mine").optimizer
    former = __import__("mine").optimizer()
    found = train(optimizer, keras.Variable([1.0, -2.0]))
    np.testing.assert_allclose(found, train(former, tf.Variable([1.0, -2.0])), rtol=1e-5)


@pytest.mark.parametrize(
    "made",
    [
        "SGD(0.1, momentum=0.9, nesterov=True, clipnorm=1.0)",
        "SGD(0.1, weight_decay=0.01)",
        "SGD(schedules.PiecewiseConstantDecay([3, 6], [0.1, 0.2, 0.3]))",
        "SGD(schedules.CosineDecay(0.1, 20, warmup_target=0.3, warmup_steps=4))",
        "Adam(schedules.ExponentialDecay(0.1, 5, 0.5), amsgrad=True)",
        "Adam(schedules.PolynomialDecay(0.1, 5), clipvalue=0.5)",
        "Adam(schedules.InverseTimeDecay(0.1, 3, 0.5), global_clipnorm=0.5)",
        "AdamW(schedules.CosineDecayRestarts(0.1, 5), weight_decay=0.01)",
        "RMSprop(0.1, momentum=0.5, centered=True)",
        "Adagrad(0.1)",
        "Adadelta(0.1)",
        "Adamax(0.1)",
        "Nadam(0.1)",
        "Ftrl(0.1, l1_regularization_strength=0.01)",
        "Lion(0.1)",
        "legacy.SGD(0.1, decay=0.5)",
        "legacy.Adam(0.1)",
        "legacy.RMSprop(0.1)",
        "legacy.Adagrad(0.1)",
        "legacy.Ftrl(0.1)",
    ],
)
def test_an_optimizer_of_tf_keras_has_the_same_rule_in_keras_3(made: str) -> None:
    def make() -> Any:
        return eval(made, vars(tf_keras.optimizers))

    optimizer = to_keras_3(make())
    assert isinstance(optimizer, keras.optimizers.Optimizer)
    found = train(optimizer, keras.Variable([1.0, -2.0]))
    expected = train(make(), tf.Variable([1.0, -2.0]))
    # Those of legacy add epsilon at another place.
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@both
def test_a_model_without_inputs_is_refused(zoo: ZooFolder, source: str) -> None:
    without = "def custom_model():\n    return models.Sequential([layers.Dense(1)])\n"
    zoo.write("mine.py", REST + LOSS + source.replace("def custom_model", "def other") + without)
    with pytest.raises(ContractErrors, match="Sequential, a model of Keras 2 without inputs"):
        zoo.load("mine")


SUBCLASSED = """
class Net(models.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(1)
    def call(self, features):
        return self.dense(features["x"])

def custom_model():
    return Net()
"""


def test_a_subclassed_model_is_refused(zoo: ZooFolder) -> None:
    source = TF_KERAS.replace("def custom_model", "def other") + SUBCLASSED
    zoo.write("mine.py", REST + LOSS + source)
    with pytest.raises(ContractErrors, match="Net, a model of Keras 2 without inputs"):
        zoo.load("mine.custom_model")


MODERN = """
import keras, tf_keras
inputs = keras.Input((2,), name="x")
model = keras.Model(inputs, keras.layers.Dense(1)(inputs))
"""
LAYER = """
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.parts = [tf_keras.layers.Dense(3), keras.layers.Dense(1)]
    def call(self, features):
        return self.parts[1](self.parts[0](features["x"]))
model = Net()
"""
MIXED = {
    "a layer": (
        "model = keras.Model(inputs, tf_keras.layers.Dense(1)(inputs))",
        "Dense of tf_keras (Keras 2) does not work with Keras 3",
    ),
    "a layer in a Sequential": (
        "model = keras.Sequential([inputs, tf_keras.layers.Dense(1)])",
        "Dense of tf_keras (Keras 2) does not work with Keras 3",
    ),
    "a layer that is an attribute": (LAYER, "net has a Dense of tf_keras (Keras 2), whose weights"),
    "a layer of Keras 3": (
        "x = tf_keras.Input((2,)); model = tf_keras.Model(x, keras.layers.Dense(1)(x))",
        "Functional, a model of Keras 2, has no weights",
    ),
    "a callback": (
        "callbacks = [tf_keras.callbacks.EarlyStopping()]",
        "has an EarlyStopping of tf_keras (Keras 2), which is not a Keras callback",
    ),
    "an optimizer": (
        "class Own(tf_keras.optimizers.SGD): pass\noptimizer = Own()",
        "optimizer is an Own of tf_keras (Keras 2), not a Keras optimizer",
    ),
    "a schedule": (
        "schedule = tf_keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)\n"
        "optimizer = keras.optimizers.SGD(schedule)",
        "a learning rate that is an ExponentialDecay of tf_keras (Keras 2)",
    ),
    "a metric": (
        "class Own(tf_keras.metrics.Mean): pass\ndef eval_metrics_fn(): return {'own': Own()}",
        "a metric own that is an Own of tf_keras (Keras 2)",
    ),
    "a layer in TensorFlow": (
        "import importlib\n"
        "old = importlib.import_module('tensorflow.python.keras.layers.core')\n"
        "model = keras.Model(inputs, old.Dense(1)(inputs))",
        "Dense of tensorflow.python.keras (Keras 2) does not work with Keras 3",
    ),
}


@pytest.mark.parametrize("source", MIXED)
def test_a_mixture_with_keras_3_is_refused_by_name(zoo: ZooFolder, source: str) -> None:
    mixed, message = MIXED[source]
    zoo.write("mine.py", REST + LOSS + MODERN + mixed)
    with pytest.raises(ContractErrors) as caught:
        zoo.load("mine")
    (error,) = caught.value.errors
    assert message in error.what
    assert f"{zoo.root}/mine.py:" in error.where
    assert "import keras" in error.remedy


def test_errors_of_keras_with_other_objects_around_are_told(zoo: ZooFolder) -> None:
    """Such as a file of h5py, which is like a dictionary and was not opened."""
    zoo.write("mine.py", REST + LOSS + MODERN + "model.load_weights('missing.weights.h5')")
    with pytest.raises(ContractErrors, match="FileNotFoundError"):
        zoo.load("mine")


def test_a_whole_model_of_keras_2_is_named(zoo: ZooFolder) -> None:
    path = zoo.write("mine.py", REST + LOSS + TF_KERAS)
    (warning,) = zoo.load("mine").warnings
    assert warning.startswith(f"{path}:{zoo.line('mine.py', 'def custom_model')}, custom_model: ")
    assert "tf_keras (Keras 2)" in warning
    assert "import keras" in warning


def test_why_such_a_model_is_not_saved(zoo: ZooFolder, tmp_path: Any) -> None:
    zoo.write("mine.py", REST + LOSS + TF_KERAS)
    with pytest.raises(NotImplementedError, match="it is of Keras 2"):
        zoo.load("mine").model.save(tmp_path / "model.keras")
