"""Removed names exist for model files only, each with one warning that names the place."""

from __future__ import annotations

import threading
import warnings

import keras
import pytest
import tensorflow as tf
from zoo_folder import ZooFolder

from edl_worker.model_file.zoo import compatibility
from edl_worker.model_file.zoo.compatibility import CompatibilityWarning
from edl_worker.model_file.zoo.module_import import import_module, open_zoo


def run(zoo: ZooFolder, source: str) -> tuple[object, list[warnings.WarningMessage]]:
    """The value of ``found`` in a model file, and the warnings that it caused."""
    zoo.write("mine.py", source)
    compatibility.forget_warnings()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        module = import_module(open_zoo(str(zoo.root)), "mine")
    return module.found, [w for w in caught if w.category is CompatibilityWarning]


@pytest.mark.parametrize(
    ("expression", "kind", "options"),
    [
        ("GradientDescentOptimizer(0.5)", "SGD", {"learning_rate": 0.5, "momentum": 0.0}),
        ("GradientDescentOptimizer(learning_rate=0.5)", "SGD", {"learning_rate": 0.5}),
        ("MomentumOptimizer(0.5, 0.9, use_nesterov=True)", "SGD",
         {"learning_rate": 0.5, "momentum": 0.9, "nesterov": True}),
        ("AdamOptimizer()", "Adam", {"learning_rate": 0.001, "epsilon": 1e-8, "beta_2": 0.999}),
        ("AdamOptimizer(0.5, beta1=0.7)", "Adam", {"learning_rate": 0.5, "beta_1": 0.7}),
        ("AdagradOptimizer(0.5)", "Adagrad",
         {"learning_rate": 0.5, "initial_accumulator_value": 0.1}),
        ("AdadeltaOptimizer(0.5, rho=0.9)", "Adadelta", {"learning_rate": 0.5, "rho": 0.9}),
        ("RMSPropOptimizer(0.5, decay=0.8)", "RMSprop", {"learning_rate": 0.5, "rho": 0.8}),
        ("FtrlOptimizer(0.5, l1_regularization_strength=0.1)", "Ftrl",
         {"learning_rate": 0.5, "l1_regularization_strength": 0.1}),
    ],
)  # fmt: skip
def test_the_optimizers_of_tensorflow_1(
    zoo: ZooFolder, expression: str, kind: str, options: dict[str, object]
) -> None:
    found, warned = run(zoo, f"found = tf.train.{expression}")
    assert type(found).__name__ == kind
    assert isinstance(found, keras.optimizers.Optimizer)
    config = found.get_config()
    for name, value in options.items():
        assert config[name] == pytest.approx(value), name
    (warning,) = warned
    assert str(warning.message).startswith(f"tf.train.{expression.partition('(')[0]} ")
    assert "Write tf.keras.optimizers." in str(warning.message)
    place = (warning.filename, warning.lineno)
    assert place == (str(zoo.root / "mine.py"), zoo.line("mine.py", "found ="))


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("tf.constant([[1, 2], [3, 4]]).flatten().numpy().tolist()", [1, 2, 3, 4]),
        ("float(tf.log(1.0))", 0.0),
        ("tf.to_float(3).dtype.name", "float32"),
        ("tf.to_int32(3.7).numpy().item()", 3),
        ("tf.div(6, 3).numpy().item()", 2),
        ("tf.FixedLenFeature([2], tf.float32).shape", [2]),
        ("float(tf.keras.losses.mean_squared_error([1.0], [3.0]))", 4.0),
        ("float(tf.keras.metrics.mean_absolute_error([1.0], [3.0]))", 2.0),
        ("float(tf.keras.optimizers.SGD(lr=0.5).learning_rate)", 0.5),
        ("float(tf.keras.optimizers.Adam(lr=0.5).learning_rate)", 0.5),
    ],
)
def test_other_removed_names(zoo: ZooFolder, expression: str, value: object) -> None:
    found, warned = run(zoo, f"found = {expression}")
    assert found == value
    assert len(warned) == 1


def test_one_warning_for_each_place(zoo: ZooFolder) -> None:
    _, warned = run(
        zoo,
        "for _ in range(3):\n    found = tf.to_float(1)\nfound = tf.to_float(2)\n",
    )
    assert len(warned) == 2


def test_removed_names_do_not_exist_outside_model_files(zoo: ZooFolder) -> None:
    init = keras.optimizers.SGD.__mro__[-3].__init__
    run(zoo, "found = tf.train.Optimizer")
    for owner, name in (
        (tf.train, "GradientDescentOptimizer"),
        (tf.train, "Optimizer"),
        (tf, "log"),
        (tf.Tensor, "flatten"),
        (tf.keras.losses, "mean_squared_error"),
    ):
        assert not hasattr(owner, name), name
    assert keras.optimizers.SGD.__mro__[-3].__init__ is init
    with pytest.raises(ValueError, match="lr"):
        keras.optimizers.SGD(lr=0.5)


def test_removed_names_exist_until_the_last_thread_is_done() -> None:
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with compatibility.provide_removed_names():
            entered.set()
            assert leave.wait(200)

    thread = threading.Thread(target=other)
    with compatibility.provide_removed_names():
        thread.start()
        assert entered.wait(200)
    assert hasattr(tf.Tensor, "flatten")
    leave.set()
    thread.join(200)
    assert not hasattr(tf.Tensor, "flatten")


def test_existing_names_are_not_replaced() -> None:
    before = {name: getattr(tf, name) for name in ("cast", "reshape", "Tensor")}
    with compatibility.provide_removed_names():
        assert all(getattr(tf, name) is value for name, value in before.items())
        assert tf.math.log is not tf.log


KERAS_2_STEP = """
import keras
import tensorflow as tf

class Net(keras.Model):
    def call(self, x):
        return x + 3.0

    def train_step(self, data):
        x, y = data
        found = self(x)
        self.compiled_loss(y, found, regularization_losses=self.losses)
        self.compiled_metrics.update_state(y, found)
        return {metric.name: metric.result() for metric in self.metrics}

net = Net()
net.compile(loss="mse", metrics=["mae"])
net.compute_loss(y=tf.zeros([2, 1]), y_pred=net(tf.zeros([2, 1])))
found = net.train_step((tf.zeros([2, 1]), tf.zeros([2, 1])))
"""


def test_a_step_of_keras_2_returns_its_loss_and_metrics(zoo: ZooFolder) -> None:
    found, _ = run(zoo, KERAS_2_STEP)
    assert isinstance(found, dict)
    assert float(found["loss"]) == 9.0
    assert float(found["compile_metrics"]["mae"]) == 3.0
