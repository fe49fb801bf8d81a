"""Losses, metrics, optimizers and weights as ``model.compile`` and ``fit`` take them.

Each case gives the same gradients and the same evaluation as Keras alone.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from model_files import LOSS, MODEL, REST
from zoo_folder import ZooFolder

from edl_worker.core.batch import Batch
from edl_worker.engines.tensorflow.model import ModelFile
from edl_worker.engines.tensorflow.training.arena import Arena
from edl_worker.engines.tensorflow.training.gradient_step import GradientStep
from edl_worker.engines.tensorflow.training.wire_values import WireValues
from edl_worker.model_file.errors import ContractErrors

TWO_OUTPUTS = """
inputs = tf.keras.Input((2,), name="x")
hidden = tf.keras.layers.Dense(3, activation="tanh")(inputs)
model = tf.keras.Model(inputs, {
    "size": tf.keras.layers.Dense(1, name="size")(hidden),
    "kind": tf.keras.layers.Dense(2, activation="softmax", name="kind")(hidden)})
"""
CLASSES = """
inputs = tf.keras.Input((2,), name="x")
model = tf.keras.Model(inputs, tf.keras.layers.Dense(3, activation="softmax")(inputs))
"""
ONE = "one"
KIND = "kind"
TWO = "two"

RANDOM = np.random.default_rng(5)
FEATURES = RANDOM.normal(size=(8, 2)).astype(np.float32)
LABELS = {
    ONE: RANDOM.normal(size=(8, 1)).astype(np.float32),
    KIND: RANDOM.integers(0, 3, (8, 1)),
    TWO: {
        "size": RANDOM.normal(size=(8, 1)).astype(np.float32),
        "kind": RANDOM.integers(0, 2, (8,)),
    },
}
WEIGHTS = np.array([0, 1, 2, 0.5, 1, 3, 0.1, 1], np.float32)

# Source of the model file, its labels, arguments of ``compile``, and of ``train_on_batch``.
CASES: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "names": (
        MODEL + "loss = 'mse'\nmetrics = ['mae', tf.keras.metrics.MeanSquaredError(name='square')]",
        ONE,
        {"loss": "mse", "metrics": ["mae", keras.metrics.MeanSquaredError(name="square")]},
        {},
    ),
    "sample weights": (
        MODEL + "loss = 'huber'\nmetrics = ['mae']\nweighted_metrics = ['mse', 'mae']",
        ONE,
        {"loss": "huber", "metrics": ["mae"], "weighted_metrics": ["mse", "mae"]},
        {"sample_weight": WEIGHTS},
    ),
    "a function with sample weights": (
        MODEL + LOSS,
        ONE,
        {"loss": lambda y, p: tf.square(y - p)},
        {"sample_weight": WEIGHTS},
    ),
    "a Keras loss with sample weights": (
        MODEL + "loss = tf.keras.losses.MeanAbsoluteError()",
        ONE,
        {"loss": keras.losses.MeanAbsoluteError()},
        {"sample_weight": WEIGHTS},
    ),
    "a weight of the only loss": (
        MODEL + "loss = tf.keras.losses.MeanAbsoluteError()\nloss_weights = [0.25]",
        ONE,
        {"loss": keras.losses.MeanAbsoluteError(), "loss_weights": [0.25]},
        {},
    ),
    "class weights": (
        CLASSES + "class_weight = {0: 1.0, 2: 4.0}\n"
        "loss = 'sparse_categorical_crossentropy'\ndef eval_metrics_fn(): return ['accuracy']",
        KIND,
        {"loss": "sparse_categorical_crossentropy", "metrics": ["accuracy"]},
        {"class_weight": {0: 1.0, 2: 4.0}},
    ),
    "a loss for each output": (
        TWO_OUTPUTS + "loss = {'size': 'mse', 'kind': 'sparse_categorical_crossentropy'}\n"
        "loss_weights = {'size': 0.25, 'kind': 2.0}\n"
        "metrics = {'size': ['mae'], 'kind': ['accuracy']}",
        TWO,
        {
            "loss": {"size": "mse", "kind": "sparse_categorical_crossentropy"},
            "loss_weights": {"size": 0.25, "kind": 2.0},
            "metrics": {"size": ["mae"], "kind": ["accuracy"]},
        },
        {},
    ),
    "a compiled model": (
        TWO_OUTPUTS + "model.compile('adam', {'size': 'mae', 'kind': 'crossentropy'},\n"
        "    metrics={'kind': 'accuracy'})",
        TWO,
        {"loss": {"size": "mae", "kind": "crossentropy"}, "metrics": {"kind": "accuracy"}},
        {},
    ),
}


def load(zoo: ZooFolder, source: str, **options: str) -> ModelFile:
    zoo.write("mine.py", source if "optimizer" in source else REST + source)
    return zoo.load("mine", **options)


def tensors(nest: Any) -> Any:
    return tf.nest.map_structure(tf.convert_to_tensor, nest)


UNNAMED_OUTPUTS = TWO_OUTPUTS.replace(', name="size"', "").replace(', name="kind"', "")
SUBCLASSED_OUTPUTS = """
class Net(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.size = tf.keras.layers.Dense(1)
        self.kind = tf.keras.layers.Dense(2, activation="softmax")
    def call(self, x):
        return {"size": self.size(x["x"]), "kind": self.kind(x["x"])}
model = Net()
"""


LISTS = "{'size': ['mae'], 'kind': ['accuracy']}"
BY_NAME = "{'size': {'mae': 'mae'}, 'kind': {'accuracy': 'accuracy'}}"
OBJECTS = (
    "{'size': {'mae': lambda labels, outputs: tf.abs(labels - outputs)},"
    " 'kind': {'accuracy': tf.keras.metrics.SparseCategoricalAccuracy()}}"
)


@pytest.mark.parametrize(
    ("model", "metrics"),
    [
        (TWO_OUTPUTS, LISTS),
        (TWO_OUTPUTS, BY_NAME),
        (UNNAMED_OUTPUTS, LISTS),
        (UNNAMED_OUTPUTS, OBJECTS),
        (SUBCLASSED_OUTPUTS, BY_NAME),
        (SUBCLASSED_OUTPUTS, OBJECTS),
    ],
)
def test_metrics_by_the_name_of_an_output(zoo: ZooFolder, model: str, metrics: str) -> None:
    loss = "loss = {'size': 'mse', 'kind': 'sparse_categorical_crossentropy'}\n"
    file = load(zoo, f"{REST}{model}{loss}metrics = {metrics}")
    batch = Batch({"x": tf.constant(FEATURES)}, tensors(LABELS[TWO]), 8)
    file.build(batch)
    outputs = file.predict(batch.features)
    measured = file.new_metrics()
    measured.add(batch, lambda each: file.predict(each.features))
    values = measured.result()
    assert set(file.metric_names) == {"loss", "size_mae", "kind_accuracy"} == set(values)
    labels = LABELS[TWO]
    assert values["size_mae"] == pytest.approx(np.abs(labels["size"] - outputs["size"]).mean())
    hits = labels["kind"] == np.argmax(outputs["kind"], 1)
    assert values["kind_accuracy"] == pytest.approx(hits.mean())


def test_metrics_by_the_name_of_a_single_output(zoo: ZooFolder) -> None:
    named = MODEL.replace("Dense(1)", "Dense(1, name='size')")
    file = load(zoo, f"{REST}{named}{LOSS}metrics = {{'size': {{'mae': 'mae'}}}}")
    file.build(Batch({"x": tf.constant(FEATURES)}, tensors(LABELS[ONE]), 8))
    assert file.metric_names == ("loss", "size_mae")


@pytest.mark.parametrize("case", CASES)
def test_gradients_and_evaluation_equal_those_of_keras(zoo: ZooFolder, case: str) -> None:
    source, labels, compiled, fitted = CASES[case]
    file = load(zoo, REST + source)
    weights = fitted.get("sample_weight")
    batch = (
        Batch(
            {"x": tf.constant(FEATURES)}, tensors(LABELS[labels]), 8, weights and tensors(weights)
        )
        if weights is None
        else Batch({"x": tf.constant(FEATURES)}, tensors(LABELS[labels]), 8, tf.constant(weights))
    )
    file.build(batch)
    alone = keras.models.clone_model(file.model)
    alone.set_weights(file.model.get_weights())
    alone.compile(optimizer=keras.optimizers.SGD(1.0), run_eagerly=True, **compiled)

    arena = Arena(file.model)
    step = GradientStep(file, WireValues(arena)).compute(batch)
    before = [v.numpy() for v in alone.trainable_variables]
    evaluated = alone.evaluate(
        FEATURES, LABELS[labels], batch_size=8, sample_weight=weights, verbose=0, return_dict=True
    )
    result = alone.train_on_batch(FEATURES, LABELS[labels], return_dict=True, **fitted)
    wanted = [b - v.numpy() for b, v in zip(before, alone.trainable_variables, strict=True)]
    found = np.frombuffer(b"".join(bytes(part) for part in step.gradient), np.float32)
    np.testing.assert_allclose(found, np.concatenate([w.ravel() for w in wanted]), 1e-4, 1e-5)
    assert step.loss == pytest.approx(float(result["loss"]), rel=1e-5)

    # In two tasks, whose states are added.
    states: list[Any] = []
    for part in (slice(0, 3), slice(3, 8)):
        metrics = file.new_metrics()
        given = [
            tf.nest.map_structure(lambda t, part=part: t[part], nest)
            for nest in (batch.features, batch.labels)
        ]
        outputs = file.call(given[0], training=False)
        metrics.update(given[1], outputs, None if weights is None else batch.weights[part])
        states.append(metrics.states())
    total = file.new_metrics()
    total.load(
        [
            (one[0], [a + b for a, b in zip(one[1], other[1], strict=True)])
            for one, other in zip(*states, strict=True)
        ]
    )
    values = total.result()
    shown = {k: v for k, v in evaluated.items() if not k.endswith("_loss")}
    assert values == pytest.approx(shown, rel=1e-4)
    assert set(file.metric_names) == set(shown)


def test_names_on_the_command_line(zoo: ZooFolder) -> None:
    options = {"loss": "mse", "optimizer": "adam", "eval_metrics_fn": "accuracy, mae"}
    file = load(zoo, MODEL + REST, **options)
    assert type(file.optimizer).__name__ == "Adam"
    labels = tf.constant(LABELS[ONE])
    file.build(Batch({"x": tf.constant(FEATURES)}, labels, 8))
    assert file.metric_names == ("loss", "accuracy", "mae")
    wanted = float(keras.losses.MeanSquaredError()(labels, labels * 3))
    assert float(file.compute_loss(labels * 3, labels)) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("source", "where", "what"),
    [
        ("loss = 'msee'", "loss", "names 'msee', a loss that Keras does not have"),
        (LOSS + "metrics = ['accurate']", "metrics", "names 'accurate', a metric"),
        (LOSS + "class_weight = [1, 2]", "class_weight", "not a weight for each class"),
        (LOSS + "class_weight = {0: 1, 1: np.nan}", "class_weight", "class 1 the weight nan"),
        (LOSS + "optimizer = 'adamm'", "optimizer", "names 'adamm', which Keras does not have"),
    ],
)
def test_what_keras_does_not_have_is_refused(
    zoo: ZooFolder, source: str, where: str, what: str
) -> None:
    with pytest.raises(ContractErrors) as caught:
        load(zoo, MODEL + REST + source)
    (error,) = caught.value.errors
    assert error.what.startswith(f"{where} ")
    assert what in error.what
    line = zoo.line("mine.py", f"{where} =")
    assert error.where == f"{zoo.root}/mine.py:{line}, {where}"


@pytest.mark.parametrize(
    ("source", "place"),
    [
        (TWO_OUTPUTS + "model.compile('adam', loss='msee')", ":22, compile(loss=…)"),
        (
            SUBCLASSED_OUTPUTS.replace("    def call", "    default_loss = 'msee'\n    def call"),
            ", default_loss",
        ),
    ],
)
def test_a_name_in_compile_or_in_a_class_has_the_file_in_its_error(
    zoo: ZooFolder, source: str, place: str
) -> None:
    with pytest.raises(ContractErrors) as caught:
        load(zoo, source)
    (error,) = caught.value.errors
    assert error.where == f"{zoo.root}/mine.py{place}"


@pytest.mark.parametrize("outputs", [TWO_OUTPUTS, UNNAMED_OUTPUTS])
def test_a_loss_for_an_output_that_the_model_lacks_is_refused(zoo: ZooFolder, outputs: str) -> None:
    with pytest.raises(ContractErrors) as caught:
        load(zoo, outputs + "loss = {'size': 'mse', 'sort': 'mse'}")
    (error,) = caught.value.errors
    assert error.what == "loss names 'sort', but the outputs of the model are size, kind"
    assert error.where == f"{zoo.root}/mine.py:{zoo.line('mine.py', 'loss =')}, loss"


def test_weights_need_a_loss_for_each_example(zoo: ZooFolder) -> None:
    scalar = "def loss(labels, predictions): return tf.reduce_mean((labels - predictions) ** 2)"
    file = load(zoo, MODEL + REST + scalar)
    weights = tf.constant(WEIGHTS)
    with pytest.raises(ContractErrors, match="one value for the whole minibatch"):
        file.build(Batch({"x": tf.constant(FEATURES)}, tf.constant(LABELS[ONE]), 8, weights))


def test_dataset_functions_yield_sample_weights(zoo: ZooFolder) -> None:
    from model_files import rows

    weighted = "loss = 'mse'\nold = dataset_fn\ndef dataset_fn(dataset, mode):\n" + (
        "    return old(dataset, mode).map(lambda x, y: (x, y, y[0] * 2))\n"
    )
    file = load(zoo, MODEL + REST + weighted)
    from elasticdl.python.common.constants import Mode

    records = rows(4)
    (batch,) = file.batches(lambda: iter([records]), mode=Mode.TRAINING, minibatch_size=8, seed=0)
    np.testing.assert_allclose(batch.weights, 2 * batch.labels[:, 0])
