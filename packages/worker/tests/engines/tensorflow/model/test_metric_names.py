"""Each value of an evaluation has a name of its own."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from model_files import LOSS, MODEL, REST
from zoo_folder import ZooFolder

from edl_proto.errors import ErrorCode
from edl_worker.core.batch import Batch
from edl_worker.engines.tensorflow.model import ModelFile
from edl_worker.model_file.errors import ContractErrors
from edl_worker.model_file.zoo.compatibility import CompatibilityWarning

FEATURES = np.array([[0, 1], [2, 0], [1, 1], [3, 2]], np.float32)
LABELS = np.array([[0], [1], [3], [2]], np.float32)
WEIGHTS = np.array([0, 1, 2, 5], np.float32)
BATCH = Batch({"x": tf.constant(FEATURES)}, tf.constant(LABELS), 4, tf.constant(WEIGHTS))


def load(zoo: ZooFolder, metrics: str) -> ModelFile:
    zoo.write("mine.py", REST + MODEL + LOSS + metrics)
    return zoo.load("mine", seed=1)


@pytest.mark.parametrize(
    "metrics",
    [
        "def eval_metrics_fn():\n    return {'loss': tf.keras.metrics.MeanAbsoluteError()}",
        "def eval_metrics_fn():\n    return {'loss': lambda labels, predictions: labels}",
        "metrics = [tf.keras.metrics.MeanAbsoluteError(name='loss')]",
        "weighted_metrics = [tf.keras.metrics.MeanAbsoluteError(name='loss')]",
    ],
)
def test_a_metric_with_the_name_of_the_loss_is_refused(zoo: ZooFolder, metrics: str) -> None:
    with pytest.raises(ContractErrors) as caught:
        load(zoo, metrics).build(BATCH)
    (error,) = caught.value.errors
    assert error.code == ErrorCode.MODEL_CONTRACT
    assert error.what == ("a metric has the name loss, under which edl reports the loss itself")
    assert "another name" in error.remedy
    name = "eval_metrics_fn" if "def" in metrics else metrics.partition(" ")[0]
    assert error.where.startswith(f"{zoo.root}/mine.py")
    assert error.where.endswith(f", {name}")


@pytest.mark.parametrize(
    "metrics",
    [
        "def eval_metrics_fn():\n    return {'a\\nb': tf.keras.metrics.MeanAbsoluteError()}",
        "def eval_metrics_fn(labels, predictions):\n    return {'a\\nb': labels}",
        "metrics = [tf.keras.metrics.MeanAbsoluteError(name='a\\x1b[2J')]",
    ],
)
def test_a_metric_whose_name_would_command_a_terminal_is_refused(
    zoo: ZooFolder, metrics: str
) -> None:
    with pytest.raises(ContractErrors) as caught:
        load(zoo, metrics).build(BATCH)
    (error,) = caught.value.errors
    assert error.code == ErrorCode.MODEL_CONTRACT
    assert error.what.isprintable()
    assert "has control characters" in error.what


@pytest.mark.parametrize("value", ["labels - predictions", "tf.keras.metrics.MeanAbsoluteError()"])
def test_values_of_a_batch_may_have_the_name_of_the_loss(zoo: ZooFolder, value: str) -> None:
    """Files for ElasticDL do so. It is no loss for edl, whose callbacks see the loss itself."""
    file = load(
        zoo,
        f"def eval_metrics_fn(predictions, labels):\n    return {{'loss': {value}, 'second': 2.0}}",
    )
    with pytest.warns(CompatibilityWarning, match="a value loss, which is reported as metric_loss"):
        file.build(BATCH)
    outputs = file.predict(BATCH.features)
    measured = file.new_metrics()
    measured.add(BATCH, lambda batch: outputs)
    values = measured.result()
    assert list(values) == list(file.metric_names)
    errors = LABELS - np.asarray(outputs)
    expected = np.abs(errors) if "MeanAbsolute" in value else errors
    assert values["metric_loss"] == pytest.approx(expected.mean(), rel=1e-5)
    assert values["second"] == 2.0
    assert values["loss"] > 0


def test_a_metric_with_the_name_of_the_loss_needs_no_data_to_be_refused(zoo: ZooFolder) -> None:
    with pytest.raises(ContractErrors, match="has the name loss"):
        load(zoo, "metrics = {'loss': 'mae'}")


def test_the_loss_of_an_output_is_a_metric_like_others(zoo: ZooFolder) -> None:
    named = MODEL.replace("Dense(1)", "Dense(1, name='size')")
    zoo.write("mine.py", REST + named + LOSS + "metrics = {'size': {'loss': 'mae'}}")
    file = zoo.load("mine")
    file.build(BATCH)
    assert file.metric_names == ("loss", "size_loss")


@pytest.mark.parametrize(
    "metrics",
    [
        "{'mae': tf.keras.metrics.MeanAbsoluteError()}",
        "{'mae': lambda labels, predictions: tf.abs(labels - predictions)}",
        "['mae']",
    ],
)
def test_a_weighted_metric_of_the_same_name_is_named_as_in_keras(
    zoo: ZooFolder, metrics: str
) -> None:
    file = load(zoo, f"metrics = {metrics}\nweighted_metrics = ['mae']")
    file.build(BATCH)
    outputs = file.predict(BATCH.features)
    measured = file.new_metrics()
    measured.add(BATCH, lambda batch: outputs)
    values = measured.result()

    model = keras.models.clone_model(file.model)
    model.set_weights(file.model.get_weights())
    model.compile(loss="mse", metrics=["mae"], weighted_metrics=["mae"])
    expected = model.evaluate(FEATURES, LABELS, sample_weight=WEIGHTS, return_dict=True, verbose=0)
    assert set(file.metric_names) == set(values) == set(expected)
    assert expected["mae"] != pytest.approx(expected["weighted_mae"])
    assert values == pytest.approx(expected, rel=1e-5)


def test_a_monitor_of_a_weighted_metric_of_the_same_name(zoo: ZooFolder) -> None:
    file = load(
        zoo,
        "metrics = {'mae': 'mae'}\nweighted_metrics = ['mae']\n"
        "callbacks = [tf.keras.callbacks.EarlyStopping('val_weighted_mae', mode='min')]",
    )
    file.build(BATCH)
    file.resolve_callbacks(validates=True)
    assert file.callbacks[0].monitor == "val_weighted_mae"


def test_weighted_metrics_whose_names_are_taken_are_refused(zoo: ZooFolder) -> None:
    file = load(
        zoo,
        "metrics = {'mae': 'mae', 'weighted_mae': 'mse'}\nweighted_metrics = ['mae']",
    )
    with pytest.raises(ContractErrors, match="2 metrics have the name weighted_mae"):
        file.build(BATCH)


@pytest.mark.parametrize("callback", ["ReduceLROnPlateau('loss')", "LearningRateScheduler(max)"])
def test_a_callback_that_sets_the_rate_of_a_schedule(zoo: ZooFolder, callback: str) -> None:
    schedule = "tf.keras.optimizers.schedules.ExponentialDecay(0.1, 9, 0.9)"
    text = REST.replace("SGD(lr)", f"SGD({schedule})") + MODEL + LOSS
    zoo.write("mine.py", f"{text}callbacks = [tf.keras.callbacks.{callback}]\n")
    file = zoo.load("mine", seed=1)
    file.build(BATCH)
    with pytest.raises(ContractErrors, match="follows the schedule ExponentialDecay") as caught:
        file.resolve_callbacks(validates=True)
    assert "callbacks" in caught.value.errors[0].where


@pytest.mark.parametrize(
    ("wrapped", "message"),
    [
        ("LossScaleOptimizer(SCHEDULED)", "which follows the schedule ExponentialDecay"),
        ("MultiOptimizer(OptimizerMap(SGD(0.1), {'x': Adam()}))", "of which MultiOptimizer has"),
    ],
)
def test_a_callback_that_sets_the_rate_of_inner_optimizers(
    zoo: ZooFolder, wrapped: str, message: str
) -> None:
    imports = "from keras.optimizers import *\n"
    scheduled = wrapped.replace("SCHEDULED", "SGD(schedules.ExponentialDecay(0.1, 9, 0.9))")
    text = imports + REST.replace("tf.keras.optimizers.SGD(lr)", scheduled) + MODEL + LOSS
    assert scheduled in text
    zoo.write("mine.py", f"{text}callbacks = [tf.keras.callbacks.ReduceLROnPlateau('loss')]\n")
    file = zoo.load("mine", seed=1, replicated=True)
    file.build(BATCH)
    with pytest.raises(ContractErrors, match=message):
        file.resolve_callbacks(validates=True)
