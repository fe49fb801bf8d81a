"""Every way to write a definition, options that replace one, and arguments by name."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from model_files import LOSS, MODEL, REST, rows
from plain_loop import batches, train
from zoo_folder import ZooFolder

from edl_worker.model_file.errors import ContractErrors

LABELS = np.array([[1.0], [0.0], [3.0], [2.0]], np.float32)
OUTPUTS = np.array([[0.5], [2.0], [3.0], [1.0]], np.float32)
MEAN_SQUARED = float(np.mean((LABELS - OUTPUTS) ** 2))


@pytest.mark.parametrize(
    ("source", "reduction"),
    [
        ("def loss(labels, predictions): return tf.square(labels - predictions)", "mean"),
        ("def loss(output, labels): return tf.square(labels - output)", "mean"),
        ("def loss(outputs, labels): return tf.reduce_mean(tf.square(labels - outputs))", "mean"),
        ("def loss(y_true, y_pred): return tf.square(y_true - y_pred)[:, 0]", "mean"),
        ("def loss(what, labels): return tf.square(labels - what)", "mean"),
        ("def loss(predictions=None, labels=None): return (labels - predictions) ** 2", "mean"),
        ("loss = lambda labels, predictions: tf.square(labels - predictions)", "mean"),
        ("loss = tf.keras.losses.MeanSquaredError()", "mean"),
        ("loss = tf.keras.losses.MeanSquaredError", "mean"),
        ("loss = tf.keras.losses.MeanSquaredError(reduction='none')", "mean"),
        ("loss = tf.keras.losses.mean_squared_error", "mean"),
        ("def loss(): return tf.keras.losses.MeanSquaredError()", "mean"),
        ("def loss(): return tf.keras.losses.mean_squared_error", "mean"),
        ("from functools import partial\ndef f(scale, labels, predictions):\n"
         "    return scale * (labels - predictions) ** 2\nloss = partial(f, 1.0)", "mean"),
        ("loss = tf.keras.losses.MeanSquaredError(reduction='sum')", "sum"),
        ("def loss(labels, predictions): return tf.reduce_sum((labels - predictions) ** 2)", "sum"),
    ],
)  # fmt: skip
def test_every_way_to_write_a_loss(zoo: ZooFolder, source: str, reduction: str) -> None:
    zoo.write("mine.py", MODEL + REST + source)
    model_file = zoo.load("mine")
    value = model_file.compute_loss(tf.constant(OUTPUTS), tf.constant(LABELS))
    assert value.shape == ()
    times = len(LABELS) if reduction == "sum" else 1
    assert float(value) == pytest.approx(times * MEAN_SQUARED)
    losses = train(model_file, rows())
    assert model_file.reduction == reduction
    assert np.isfinite(losses).all()


def test_a_loss_may_branch_on_a_tensor(zoo: ZooFolder) -> None:
    zoo.write(
        "mine.py",
        MODEL
        + REST
        + """
def loss(labels, predictions):
    error = tf.reduce_mean(tf.abs(labels - predictions))
    if error > 1.0:
        error = error * 10.0
    return error
""",
    )
    model_file = zoo.load("mine")
    train(model_file, rows())
    traced = tf.function(model_file.compute_loss)
    assert float(traced(tf.constant([[0.5]]), tf.constant([[0.0]]))) == 0.5
    assert float(traced(tf.constant([[2.0]]), tf.constant([[0.0]]))) == 20.0


@pytest.mark.parametrize(
    "source",
    [
        "def optimizer(lr=0.25): return tf.keras.optimizers.SGD(lr)",
        "def optimizer(): return tf.train.GradientDescentOptimizer(0.25)",
        "def optimizer(): return tf.keras.optimizers.SGD(lr=0.25)",
        "optimizer = tf.keras.optimizers.SGD(0.25)",
        "optimizer = lambda: tf.keras.optimizers.SGD(0.25)",
    ],
)
def test_every_way_to_write_an_optimizer(zoo: ZooFolder, source: str) -> None:
    zoo.write("mine.py", MODEL + REST + LOSS + source)
    model_file = zoo.load("mine")
    assert model_file.optimizer is model_file.optimizer
    assert float(model_file.optimizer.learning_rate.numpy()) == 0.25


CLASS = """
class Net(tf.keras.Model):
    def __init__(self, units=1):
        super().__init__()
        self.scale = 3.0
        self.dense = tf.keras.layers.Dense(units)

    def call(self, inputs):
        return self.dense(inputs)

    {decorator}
    def default_input({first}{data}):
        {body}

    {decorator}
    def default_loss({first}labels, predictions):
        return tf.square(labels - predictions)

    {decorator}
    def default_optimizer({last}learning_rate=0.125):
        return tf.keras.optimizers.SGD(learning_rate)
"""
BY_DATASET = """
        parse = lambda r: tf.io.parse_single_example(r, {
            "x": tf.io.FixedLenFeature([2], tf.float32),
            "y": tf.io.FixedLenFeature([1], tf.float32)})
        return dataset.map(parse).map(lambda r: ({"x": r["x"]}, r["y"]))
"""
BY_RECORDS = """
        x = np.stack([r["x"] for r in records])
        return {"x": x}, np.array([[r["y"]] for r in records])
"""


@pytest.mark.parametrize("style", ["@staticmethod", "@classmethod", "", "plain"])
@pytest.mark.parametrize("kind", ["dataset", "records"])
def test_defaults_of_a_model_class(zoo: ZooFolder, style: str, kind: str) -> None:
    """A default may be static, bound to class or instance, or a plain function without self."""
    first = {"@classmethod": "cls", "": "self"}.get(style, "")
    source = CLASS.format(
        decorator=style if style.startswith("@") else "# as it is",
        first=f"{first}, " if first else "",
        last=f"{first}, " if first else "",
        data="dataset, mode" if kind == "dataset" else "records",
        body=BY_DATASET if kind == "dataset" else BY_RECORDS,
    )
    zoo.write("mine.py", source)
    model_file = zoo.load("mine.Net", params="units=1, learning_rate=0.5")
    assert model_file.form == "class"
    losses = train(model_file, rows(), epochs=10)
    assert np.mean(losses[-4:]) < 0.1 * np.mean(losses[:4])
    assert float(model_file.optimizer.learning_rate.numpy()) == 0.5


@pytest.mark.parametrize(
    ("signature", "kind"),
    [
        ("dataset, mode", "dataset"),
        ("dataset", "dataset"),
        ("dataset, mode, _", "dataset"),
        ("dataset, mode, metadata", "dataset"),
        ("data, mode", "dataset"),
        ("records", "records"),
        ("records, mode", "records"),
        ("batch", "records"),
    ],
)
def test_the_signature_decides_the_kind_of_an_input_function(
    zoo: ZooFolder, signature: str, kind: str
) -> None:
    body = BY_DATASET if kind == "dataset" else BY_RECORDS
    name = signature.partition(",")[0]
    word = "dataset" if kind == "dataset" else "records"
    zoo.write("mine.py", MODEL + LOSS + "optimizer = tf.keras.optimizers.SGD()\n"
              + f"def read({signature}):\n        {word} = {name}{body}")  # fmt: skip
    model_file = zoo.load("mine", input_fn="mine.read")
    batch = batches(model_file, rows(4))[0]
    assert batch.features["x"].shape == (4, 2)
    assert batch.labels.shape == (4, 1)


def test_options_name_definitions_of_the_module_of_others_and_of_keras(zoo: ZooFolder) -> None:
    zoo.write("mine.py", MODEL + REST + LOSS + "def other_loss(labels, predictions): return 7.0")
    zoo.write(
        "team/parts.py",
        "def fast(lr=4.0):\n    return tf.keras.optimizers.Adam(lr)\n"
        "class Losses:\n    @staticmethod\n    def double(labels, predictions):\n"
        "        return 2 * tf.square(labels - predictions)\n"
        "def metrics(predictions, labels):\n    return {'m': predictions}\n",
    )
    at_home = zoo.load("mine", loss="other_loss")
    assert float(at_home.compute_loss(OUTPUTS, LABELS)) == 7.0
    model_file = zoo.load(
        "mine",
        loss="team.parts.Losses.double",
        optimizer="team.parts.fast",
        eval_metrics_fn="team.parts.metrics",
        params="lr=2.0",
    )
    assert float(model_file.compute_loss(OUTPUTS, LABELS)) == pytest.approx(2 * MEAN_SQUARED)
    assert float(model_file.optimizer.learning_rate.numpy()) == 2.0
    train(model_file, rows())
    assert model_file.metric_names == ("loss", "m")
    keras_s = zoo.load(
        "mine", loss="keras.losses.Huber", optimizer="tf.keras.optimizers.RMSprop",
        params="learning_rate=0.5",
    )  # fmt: skip
    assert type(keras_s.optimizer).__name__ == "RMSprop"
    assert float(keras_s.optimizer.learning_rate.numpy()) == 0.5


@pytest.mark.parametrize(
    ("options", "said", "hint"),
    [
        ({"loss": "nowhere"}, "--loss nowhere", "module.name"),
        ({"loss": "team.parts.fst"}, "has no fst", "fast"),
        ({"optimizer": "team.part.fast"}, "no such module", "team.parts"),
        ({"input_fn": "a.b", "dataset_fn": "c.d"}, "both given", "one of them"),
    ],
)
def test_an_option_that_names_nothing(
    zoo: ZooFolder, options: dict[str, str], said: str, hint: str
) -> None:
    zoo.write("mine.py", MODEL + REST + LOSS)
    zoo.write("team/parts.py", "def fast(): pass")
    with pytest.raises(ContractErrors) as caught:
        zoo.load("mine", **options)
    first = caught.value.errors[0]
    assert said in first.what
    assert hint in first.remedy


def test_a_spec_gets_context_and_parameters(zoo: ZooFolder) -> None:
    zoo.write(
        "mine.py",
        """
class Mine(ElasticDLSpec):
    def __init__(self, context=None, **kwargs):
        super().__init__(context=context)
        self.given = kwargs
    def create_model(self):
        inputs = tf.keras.Input((2,), name="x")
        outputs = tf.keras.layers.Dense(self.given["units"])(inputs)
        return tf.keras.Model(inputs, outputs, name=self._context["job"])
    def create_optimizer(self, lr=0.1):
        return tf.keras.optimizers.SGD(lr)
    def create_loss(self, outputs=None, labels=None):
        return tf.reduce_mean(outputs)
    def create_dataset(self, dataset, mode):
        return dataset
""",
    )
    model_file = zoo.load("mine.Mine", context={"job": "night"}, params="units=3, lr=0.75")
    assert model_file.model.name == "night"
    assert model_file.model.output_shape == (None, 3)
    assert float(model_file.optimizer.learning_rate.numpy()) == 0.75


def test_a_function_returns_the_model(zoo: ZooFolder) -> None:
    net = """
def net(units=2):
    inputs = tf.keras.Input((2,), name="x")
    return tf.keras.Model(inputs, tf.keras.layers.Dense(units)(inputs))
"""
    zoo.write("mine.py", net + REST + LOSS)
    assert zoo.load("mine.net", params="units=5").model.output_shape == (None, 5)
