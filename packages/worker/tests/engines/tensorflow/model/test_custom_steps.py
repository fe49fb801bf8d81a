"""Models that define their own training and evaluation steps, compared with Keras alone."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from model_files import LOSS, REST, rows
from plain_loop import batches
from zoo_folder import ZooFolder

from edl_worker.core.batch import Batch
from edl_worker.engines.tensorflow.keras_steps import KerasSteps
from edl_worker.engines.tensorflow.model import ModelFile
from edl_worker.engines.tensorflow.optimizers import describe_optimizers
from edl_worker.engines.tensorflow.training.arena import Arena
from edl_worker.engines.tensorflow.training.gradient_step import GradientStep
from edl_worker.engines.tensorflow.training.wire_values import WireValues
from edl_worker.model_file.errors import ContractErrors
from edl_worker.training.trainer import LocalTrainer

NET = """
class Net(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = tf.keras.layers.Dense(3)
        self.norm = tf.keras.layers.BatchNormalization()
        self.out = tf.keras.layers.Dense(1)
        self.extra = tf.keras.metrics.Mean(name="extra")

    def call(self, inputs, training=False):
        return self.out(self.norm(self.hidden(inputs["x"]), training=training))
"""
TRAIN_STEP = """
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            outputs = self(x, training=True)
            loss = self.compute_loss(x=x, y=y, y_pred=outputs)
            total = loss + 0.5 * tf.reduce_sum(self.out.kernel ** 2)
        variables = self.trainable_variables
        {apply}
        return {returned}
"""
APPLY = "self.optimizer.apply_gradients(zip(tape.gradient(total, variables), variables))"
PLAIN = TRAIN_STEP.format(apply=APPLY, returned='{"loss": total}')
COMPUTE_LOSS = """
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        self.extra.update_state(y)
        return tf.reduce_mean(tf.abs(y - y_pred)) + 0.1 * tf.reduce_sum(self.out.kernel ** 2)
"""
TEST_STEP = """
    def test_step(self, data):
        x, y = data
        outputs = self(x, training=False)
        self.extra.update_state(tf.abs(y - outputs))
        return {"extra": self.extra.result(), "largest": tf.reduce_mean(y)}
"""
GAN = """
class Net(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.first = tf.keras.layers.Dense(1)
        self.second = tf.keras.layers.Dense(1)

    def compile(self, one, other):
        super().compile()
        self.one, self.other = one, other

    def call(self, x):
        return self.first(x["x"]) + self.second(x["x"])

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x) - y) ** 2)
        self.one.apply_gradients(zip(tape.gradient(loss, self.first.trainable_weights),
                                     self.first.trainable_weights))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x) - y) ** 2)
        self.other.apply_gradients(zip(tape.gradient(loss, self.second.trainable_weights),
                                       self.second.trainable_weights))
        return {"first_loss": loss, "other": 7.0}

def custom_model():
    net = Net()
    net.compile(tf.keras.optimizers.SGD(0.1), tf.keras.optimizers.SGD(OTHER))
    return net
"""

RANDOM = np.random.default_rng(5)
FEATURES = {"x": RANDOM.normal(size=(8, 2)).astype(np.float32)}
LABELS = RANDOM.normal(size=(8, 1)).astype(np.float32)
BATCH = Batch({"x": tf.constant(FEATURES["x"])}, tf.constant(LABELS), 8)


def load(zoo: ZooFolder, source: str, **more: Any) -> ModelFile:
    zoo.write("mine.py", source + REST)
    file = zoo.load("mine.custom_model" if "custom_model" in source else "mine")
    file.build(BATCH, **more)
    return file


def copy_for_keras(file: ModelFile, *, loss: Any) -> keras.Model:
    """Return another model of the same class with the same weights, for Keras."""
    model = type(file.model)()
    model.compile(keras.optimizers.SGD(1.0), loss=loss)
    model(FEATURES)
    model.set_weights(file.model.get_weights())
    return model


def fit(model: keras.Model) -> float:
    """Keras's own step on the minibatch; returns the loss."""
    data = tf.data.Dataset.from_tensors((FEATURES, LABELS))
    history = model.fit(data, verbose=0).history
    return float(next(value[-1] for name, value in history.items() if "loss" in name))


@pytest.mark.parametrize(
    "steps", [PLAIN, COMPUTE_LOSS, PLAIN.replace("    def", "    @tf.function\n    def")]
)
def test_a_custom_step_gives_the_gradients_of_keras(zoo: ZooFolder, steps: str) -> None:
    file = load(zoo, NET + steps + LOSS)
    reference = copy_for_keras(file, loss=lambda y, p: tf.square(y - p))
    arena = Arena(file.model)
    trainer = GradientStep(file, WireValues(arena))
    untouched = [np.array(v) for v in file.model.weights]
    step = [trainer.compute(BATCH) for _ in range(2)][-1]
    for before, weight in zip(untouched, file.model.weights, strict=True):
        np.testing.assert_array_equal(before, weight)

    before = {id(v): v.numpy() for v in reference.weights}
    result = fit(reference)
    moved = [(v.numpy() - before[id(v)]).ravel() for v in reference.trainable_variables]
    found = np.frombuffer(b"".join(bytes(part) for part in step.gradient), np.float32)
    np.testing.assert_allclose(found, -np.concatenate(moved), 1e-3, 1e-5)
    state = [(v.numpy() - before[id(v)]).ravel() for v in reference.non_trainable_variables[-2:]]
    delta = np.frombuffer(b"".join(bytes(part) for part in step.state_delta), np.float32)
    np.testing.assert_allclose(delta, np.concatenate(state), 1e-3, 1e-6)
    assert step.loss == pytest.approx(result, rel=1e-5)


def test_a_custom_evaluation_adds_up_over_tasks(zoo: ZooFolder) -> None:
    file = load(zoo, NET + TEST_STEP + LOSS)
    reference = copy_for_keras(file, loss="mse")
    wanted = reference.evaluate(FEATURES, LABELS, batch_size=8, verbose=0, return_dict=True)
    states = []
    for part in (slice(0, 3), slice(3, 8)):
        metrics = file.new_metrics()
        size = len(range(8)[part])
        metrics.add(Batch({"x": BATCH.features["x"][part]}, BATCH.labels[part], size), None)
        states.append(dict(metrics.states()))
    total = file.new_metrics()
    total.load(
        [(k, [a + b for a, b in zip(v, states[1][k], strict=True)]) for k, v in states[0].items()]
    )
    values = total.result()
    assert values["extra"] == pytest.approx(float(wanted["extra"]), rel=1e-5)
    assert values["largest"] == pytest.approx(float(np.mean(LABELS)), rel=1e-5)
    assert "extra" in file.metric_names


def test_optimizers_that_are_alike_are_one(zoo: ZooFolder) -> None:
    file = load(zoo, GAN.replace("OTHER", "0.1"))
    assert type(file.optimizer).__name__ == "SGD"
    step = GradientStep(file, WireValues(Arena(file.model))).compute(BATCH)
    found = np.frombuffer(b"".join(bytes(part) for part in step.gradient), np.float32)
    assert np.count_nonzero(found) == 6
    assert step.loss > 0


def test_each_optimizer_has_its_variables(zoo: ZooFolder) -> None:
    """The usual GAN has such a ``compile(d_optimizer=…, g_optimizer=…)``."""
    file = load(zoo, GAN.replace("OTHER", "0.3"))
    arena = Arena(file.model)
    described = describe_optimizers(file, arena)
    (other,) = described["others"]
    assert described["config"]["learning_rate"] == pytest.approx(0.1)
    assert other["config"]["learning_rate"] == pytest.approx(0.3)
    names = [weight.name for weight in arena.weights]
    assert other["variables"] == [name for name in names if "dense_1" in name]
    assert len(other["variables"]) == 2 < len(names)

    # All gradients are of the same values: Keras alone has already moved the first half.
    step = GradientStep(file, WireValues(arena)).compute(BATCH)
    model: Any = file.model
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(FEATURES) - LABELS) ** 2)
    wanted = tape.gradient(loss, model.trainable_variables)
    found = np.frombuffer(b"".join(bytes(part) for part in step.gradient), np.float32)
    np.testing.assert_allclose(found, np.concatenate([np.ravel(g) for g in wanted]), 1e-5)


def test_the_optimizer_of_compile_is_the_first(zoo: ZooFolder) -> None:
    source = GAN.replace("OTHER", "0.3").replace("super().compile()", "super().compile(other)")
    file = load(zoo, source)
    described = describe_optimizers(file, Arena(file.model))
    assert described["config"]["learning_rate"] == pytest.approx(0.3)


def test_optimizers_that_clip_all_together_stay_apart(zoo: ZooFolder) -> None:
    source = GAN.replace("OTHER", "0.1").replace("SGD(0.1)", "SGD(0.1, global_clipnorm=1.0)")
    file = load(zoo, source)
    assert len(describe_optimizers(file, Arena(file.model))["others"]) == 1


def test_local_steps_run_a_step_as_it_is(zoo: ZooFolder) -> None:
    file = load(zoo, GAN.replace("OTHER", "0.3"), local=True)
    model: Any = file.model
    reference = type(model)()
    reference.compile(keras.optimizers.SGD(0.1), keras.optimizers.SGD(0.3))
    reference(FEATURES)
    reference.set_weights(model.get_weights())
    trainer = LocalTrainer(KerasSteps(file))
    trainer.begin_push(0)
    for _ in range(3):
        trainer.add(BATCH)
        fit(reference)
    for one, other in zip(model.get_weights(), reference.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, 1e-5, 1e-6)


def test_predictions_come_from_the_custom_step(zoo: ZooFolder) -> None:
    own = """
    def predict_step(self, data):
        return self(data) * 0 + 7.0
"""
    file = load(zoo, NET + own + LOSS)
    assert file.custom_train_step is None
    np.testing.assert_array_equal(file.predict(BATCH.features), np.full((8, 1), 7.0))
    assert not np.array_equal(file.call(BATCH.features, training=False), np.full((8, 1), 7.0))


def test_a_step_needs_neither_labels_nor_all_variables(zoo: ZooFolder) -> None:
    own = TRAIN_STEP.replace("x, y = data", "x = data").replace(
        "self.compute_loss(x=x, y=y, y_pred=outputs)", "tf.reduce_mean(outputs ** 2)"
    )
    step = own.format(
        apply="part = self.out.trainable_weights; "
        "self.optimizer.apply(tape.gradient(total, part), part)",
        returned='{"own_loss": total}',
    )
    unlabelled = "old = dataset_fn\ndef dataset_fn(dataset, mode):\n" + (
        "    return old(dataset, mode).map(lambda x, y: x)\n"
    )
    zoo.write("mine.py", NET + step + REST.replace("SGD(lr)", "AdamW(lr)") + unlabelled)
    file = zoo.load("mine")
    batch = batches(file, rows(8))[0]
    assert batch.labels is None
    file.build(batch)
    arena = Arena(file.model)
    step_result = GradientStep(file, WireValues(arena)).compute(batch)
    assert step_result.loss > 0
    assert file.custom_train_step is not None
    described = describe_optimizers(file, arena)
    left = [w.name for w in arena.weights if w.trainable and "dense_1" not in w.name]
    assert described["excluded_from_weight_decay"] == left


def step_with(apply: str, returned: str = '{"loss": total}') -> str:
    return NET + TRAIN_STEP.format(apply=apply, returned=returned) + LOSS


REFUSED = {
    "an optimizer that the master lacks": (
        GAN.replace("SGD(OTHER)", "SGD(0.2, gradient_accumulation_steps=2)"),
        "gradient_accumulation_steps=2",
    ),
    "half of a GAN twice": (
        GAN.replace("OTHER", "0.3").replace("self.second.trainable", "self.first.trainable"),
        "twice for one minibatch",
    ),
    "no optimizer": (step_with("pass"), "uses no optimizer"),
    "no loss": (step_with(APPLY, '{"accuracy": 1.0}'), "returns no loss"),
    "nothing returned": (step_with(APPLY, "None"), "returns None"),
    "assigned": (
        step_with("self.out.kernel.assign(self.out.kernel * 0.9); " + APPLY),
        "assigns net/dense_1/kernel, a trainable variable",
    ),
    "assigned sometimes": (
        step_with(
            "tf.cond(loss > 1e9, lambda: self.out.kernel.value.assign_add("
            "self.out.kernel * 0.9), lambda: self.out.kernel.value); " + APPLY
        ),
        "assigns net/dense_1/kernel",
    ),
    "twice": (
        step_with(APPLY + "; " + APPLY.replace("total", "loss")).replace(
            "GradientTape()", "GradientTape(persistent=True)"
        ),
        "twice for one minibatch",
    ),
    "a foreign variable": (
        "OTHER = tf.keras.layers.Dense(1)\nOTHER.build((None, 1))\n"
        + step_with("self.optimizer.apply([tf.ones((1, 1)), tf.ones(1)], OTHER.trainable_weights)"),
        "no trainable variable of the model",
    ),
    "a maximum": (
        NET + TEST_STEP.replace("tf.reduce_mean(y)", "tf.reduce_max(y)") + LOSS,
        "differ from the sums over its two halves",
    ),
    "a loss that does not fit the labels": (
        (NET + PLAIN + LOSS)
        .replace("Dense(1)", "Dense(3)")
        .replace(
            "self.compute_loss(x=x, y=y, y_pred=outputs)",
            "tf.reduce_mean(tf.keras.losses.categorical_crossentropy(y, outputs))",
        ),
        "keras.losses.categorical_crossentropy does not fit: it takes one number per class",
    ),
    "a name with a line feed": (
        NET + TEST_STEP.replace('"largest"', '"lar\\ngest"') + LOSS,
        "Net.test_step gives the metric lar\\ngest, whose name has control characters",
    ),
    "metrics twice": (
        NET + TEST_STEP + LOSS + "def eval_metrics_fn(): return {'a': lambda labels, outputs: 1.}",
        "and so does eval_metrics_fn",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_distributed_is_refused(zoo: ZooFolder, case: str) -> None:
    source, what = REFUSED[case]
    with pytest.raises(ContractErrors) as caught:
        load(zoo, source + "\n")
    assert what in caught.value.errors[0].what
    assert caught.value.errors[0].remedy


def test_optimizers_of_a_model_that_is_not_compiled(zoo: ZooFolder) -> None:
    made = """
        self.one, self.other = tf.keras.optimizers.SGD(0.1), tf.keras.optimizers.SGD(0.1)
"""
    source = GAN.replace("\n    def compile(self, one, other):", made + "COMPILED")
    a, b = source.index("COMPILED"), source.index("    def call")
    source = source[:a] + "\n" + source[b : source.index("def custom_model")]
    zoo.write("mine.py", source + REST.partition("def optimizer")[0])
    with pytest.raises(ContractErrors) as caught:
        zoo.load("mine")
    (error,) = caught.value.errors
    assert "its own optimizers (one, other), but it is not compiled" in error.what
    assert "self.compile(optimizer=self.one)" in error.remedy
    compiled = made + "        self.compile(optimizer=self.one)\n"
    zoo.write("other.py", source.replace(made, compiled) + REST.partition("def optimizer")[0])
    file = zoo.load("other")
    file.build(BATCH)
    assert type(file.optimizer).__name__ == "SGD"


def test_no_learning_rate_replaces_those_of_several_optimizers(zoo: ZooFolder) -> None:
    zoo.write("mine.py", GAN.replace("OTHER", "0.3") + REST)
    with pytest.raises(ContractErrors) as caught:
        zoo.load("mine.custom_model", learning_rate=0.5)
    assert "optimizers, each with a learning rate of its own" in caught.value.what
    zoo.write("mine.py", NET + PLAIN + LOSS + REST)
    assert zoo.load("mine", learning_rate=0.5).model.optimizer.learning_rate == 0.5
