"""Metric states add up: the value does not depend on the distribution of the records."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from zoo_folder import ZooFolder

from edl_worker.core.batch import Batch
from edl_worker.engines.tensorflow.model import EvaluationMetrics, ModelFile
from edl_worker.model_file.errors import ContractErrors

HEAD = """
inputs = tf.keras.Input((CLASSES,), name="x")
model = tf.keras.Model(inputs, tf.keras.layers.Dense(CLASSES, activation="softmax")(inputs))

def dataset_fn(dataset, mode):
    return dataset

def optimizer():
    return tf.keras.optimizers.SGD(0.1)

def loss(labels, predictions):
    return tf.reduce_mean(tf.square(tf.cast(labels, tf.float32) - predictions))
"""

RANDOM = np.random.default_rng(5)


def load(zoo: ZooFolder, metrics: str, classes: int = 3, head: str = HEAD) -> ModelFile:
    zoo.write("mine.py", f"import keras\nCLASSES = {classes}\n" + head + metrics)
    return zoo.load("mine", seed=1)


def data(count: int, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """One-hot labels and probabilities."""
    outputs = RANDOM.random((count, classes)).astype(np.float32)
    outputs /= outputs.sum(axis=1, keepdims=True)
    labels = np.eye(classes, dtype=np.float32)[RANDOM.integers(0, classes, count)]
    return labels, outputs


def build(model_file: ModelFile, labels: Any, outputs: Any) -> None:
    features = {"x": tf.constant(outputs[:8])}
    model_file.build(Batch(features, tf.constant(labels[:8]), 8))


def spread(model_file: ModelFile, labels: Any, outputs: Any, cuts: list[int]) -> EvaluationMetrics:
    """Return the metrics of the summed states of tasks; ``cuts`` divides the records into tasks."""
    total: dict[str, list[np.ndarray]] = {}
    for start, stop in zip([0, *cuts], [*cuts, len(labels)], strict=True):
        task = model_file.new_metrics()
        for at in range(start, stop, 5):
            end = min(at + 5, stop)
            task.update(tf.constant(labels[at:end]), tf.constant(outputs[at:end]))
        for name, values in task.states():
            held = total.setdefault(name, [np.zeros_like(value) for value in values])
            total[name] = [one + other for one, other in zip(held, values, strict=True)]
    summary = model_file.new_metrics()
    summary.load(list(total.items()))
    return summary


ADDITIVE = {
    "AUC": "keras.metrics.AUC()",
    "PR": "keras.metrics.AUC(curve='PR', num_thresholds=50)",
    "MultiAUC": "keras.metrics.AUC(multi_label=True, num_labels=3)",
    "Accuracy": "keras.metrics.CategoricalAccuracy()",
    "TopK": "keras.metrics.TopKCategoricalAccuracy(k=2)",
    "Precision": "keras.metrics.Precision()",
    "Recall": "keras.metrics.Recall(class_id=1)",
    "F1Score": "keras.metrics.F1Score(average='macro')",
    "FBetaScore": "keras.metrics.FBetaScore(beta=2.0)",
    "RootMeanSquaredError": "keras.metrics.RootMeanSquaredError()",
    "R2Score": "keras.metrics.R2Score()",
    "CosineSimilarity": "keras.metrics.CosineSimilarity()",
    "KLDivergence": "keras.metrics.KLDivergence()",
    "OneHotMeanIoU": "keras.metrics.OneHotMeanIoU(num_classes=3)",
    "SensitivityAtSpecificity": "keras.metrics.SensitivityAtSpecificity(0.5)",
    "TruePositives": "keras.metrics.TruePositives()",
    "CategoricalCrossentropy": "keras.metrics.CategoricalCrossentropy()",
}


@pytest.mark.parametrize("name", ADDITIVE)
def test_keras_metrics_are_exact_for_any_distribution_of_records(zoo: ZooFolder, name: str) -> None:
    model_file = load(zoo, f"def eval_metrics_fn():\n    return {{'m': {ADDITIVE[name]}}}")
    labels, outputs = data(83)
    build(model_file, labels, outputs)
    expected = eval(ADDITIVE[name])
    expected.update_state(labels, outputs)
    wanted = np.asarray(expected.result()).reshape(-1)
    for cuts in ([], [40], [7, 19, 60]):
        result = spread(model_file, labels, outputs, cuts).result()
        del result["loss"]
        np.testing.assert_allclose(list(result.values()), wanted, rtol=1e-5)
    assert list(result) == (["m"] if len(wanted) == 1 else [f"m/{i}" for i in range(len(wanted))])


def test_every_metric_of_keras_adds_up(zoo: ZooFolder) -> None:
    """The dry run relies on this: it checks only metric classes of users."""
    from edl_worker.engines.tensorflow.model.metrics import _adds_up

    arguments = {
        "PrecisionAtRecall": [0.5],
        "RecallAtPrecision": [0.5],
        "SensitivityAtSpecificity": [0.5],
        "SpecificityAtSensitivity": [0.5],
        "FBetaScore": ["macro"],
        "MeanIoU": [3],
        "IoU": [3, [0, 1]],
        "OneHotIoU": [3, [0, 1]],
        "OneHotMeanIoU": [3],
        "BinaryIoU": [[0, 1]],
    }
    not_of_pairs = {"Metric", "Mean", "Sum", "MeanMetricWrapper"}
    sparse = {"SparseCategoricalAccuracy", "SparseTopKCategoricalAccuracy", "MeanIoU", "IoU",
              "SparseCategoricalCrossentropy"}  # fmt: skip
    one_hot, outputs = data(40)
    tried = []
    for name in sorted(set(dir(keras.metrics)) - not_of_pairs):
        kind = getattr(keras.metrics, name)
        if not (isinstance(kind, type) and issubclass(kind, keras.metrics.Metric)):
            continue
        metric = kind(*arguments.get(name, []))
        labels = one_hot.argmax(1)[:, None] if name in sparse else one_hot
        found = outputs.argmax(1)[:, None] if name in ("MeanIoU", "IoU") else outputs
        metric.update_state(labels[:4], found[:4])
        metric.reset_state()
        halves = [(labels[:13], found[:13]), (labels[13:], found[13:])]
        assert _adds_up(metric, labels, found, halves), name
        tried.append(name)
    assert len(tried) >= 38, tried


def test_functions_are_means_over_samples(zoo: ZooFolder) -> None:
    model_file = load(
        zoo,
        """
def eval_metrics_fn():
    return {
        "per_sample": lambda labels, predictions: tf.equal(
            tf.argmax(labels, 1), tf.argmax(predictions, 1)),
        "scalar": lambda predictions, labels: tf.reduce_mean(predictions[:, 0]),
        "by_numpy": lambda labels, predictions: np.mean(predictions.numpy()[:, 1]),
        "keras_function": keras.metrics.categorical_accuracy,
    }
""",
    )
    labels, outputs = data(31)
    build(model_file, labels, outputs)
    assert model_file.metric_names == (
        "loss", "per_sample", "scalar", "by_numpy", "keras_function",
    )  # fmt: skip
    result = spread(model_file, labels, outputs, [3, 17]).result()
    accuracy = np.mean(labels.argmax(1) == outputs.argmax(1))
    assert result == pytest.approx(
        {
            "loss": np.mean((labels - outputs) ** 2),
            "per_sample": accuracy,
            "scalar": outputs[:, 0].mean(),
            "by_numpy": outputs[:, 1].mean(),
            "keras_function": accuracy,
        },
        rel=1e-5,
    )


@pytest.mark.parametrize("names", ["predictions, labels", "labels, predictions", "y_pred, y_true"])
def test_a_metrics_function_with_parameters_computes_values_of_a_batch(
    zoo: ZooFolder, names: str
) -> None:
    predictions = "y_pred" if "y_pred" in names else "predictions"
    labels_name = "y_true" if "y_true" in names else "labels"
    model_file = load(
        zoo,
        f"def eval_metrics_fn({names}):\n"
        f"    return {{'first': {predictions}[:, 0], 'shift': tf.reduce_mean({labels_name})}}",
    )
    labels, outputs = data(31)
    build(model_file, labels, outputs)
    result = spread(model_file, labels, outputs, [16]).result()
    assert list(result) == ["loss", "first", "shift"]
    assert result["first"] == pytest.approx(outputs[:, 0].mean(), rel=1e-5)
    assert result["shift"] == pytest.approx(labels.mean(), rel=1e-5)


def test_a_metrics_function_with_parameters_may_return_keras_metrics(zoo: ZooFolder) -> None:
    model_file = load(
        zoo, "def eval_metrics_fn(predictions, labels):\n    return {'auc': keras.metrics.AUC()}"
    )
    labels, outputs = data(50)
    build(model_file, labels, outputs)
    expected = keras.metrics.AUC()
    expected.update_state(labels, outputs)
    result = spread(model_file, labels, outputs, [11, 22]).result()
    assert result["auc"] == pytest.approx(float(expected.result()), rel=1e-5)


def test_the_measured_loss_is_a_mean_over_samples(zoo: ZooFolder) -> None:
    head = HEAD.replace("tf.reduce_mean(", "tf.reduce_sum(")
    model_file = load(zoo, "", head=head)
    labels, outputs = data(23)
    build(model_file, labels, outputs)
    assert model_file.reduction == "sum"
    result = spread(model_file, labels, outputs, [9]).result()
    assert result["loss"] == pytest.approx(np.sum((labels - outputs) ** 2) / 23, rel=1e-5)


OWN = """
class Own(keras.metrics.Metric):
    def __init__(self):
        super().__init__()
        {create}
    def update_state(self, labels, outputs, sample_weight=None):
        {update}
    def result(self):
        return {result}

def eval_metrics_fn():
    return {{"own": Own()}}
"""


def test_a_custom_metric_that_adds_up(zoo: ZooFolder) -> None:
    model_file = load(
        zoo,
        OWN.format(
            create="self.total = self.add_weight(name='total', shape=(), initializer='zeros')",
            update="self.total.assign_add(tf.reduce_sum(outputs[:, 0]))",
            result="self.total",
        ),
    )
    labels, outputs = data(23)
    build(model_file, labels, outputs)
    result = spread(model_file, labels, outputs, [9]).result()
    assert result["own"] == pytest.approx(outputs[:, 0].sum(), rel=1e-5)


@pytest.mark.parametrize(
    ("create", "update", "result", "said"),
    [
        (
            "self.top = self.add_weight(name='top', shape=(), initializer='zeros')",
            "self.top.assign(tf.maximum(self.top, tf.reduce_max(outputs)))",
            "self.top",
            "do not add up",
        ),
        ("self.total = 0.0", "self.total += 1.0", "self.total", "which is no variable"),
        (
            "self.low = self.add_weight(name='low', shape=(), initializer='ones')\n"
            "        self.reset_state = lambda: self.low.assign(1.0)",
            "self.low.assign_add(1.0)",
            "self.low",
            "does not start at zero",
        ),
    ],
)
def test_a_metric_that_does_not_add_up_is_refused(
    zoo: ZooFolder, create: str, update: str, result: str, said: str
) -> None:
    model_file = load(zoo, OWN.format(create=create, update=update, result=result))
    labels, outputs = data(8)
    with pytest.raises(ContractErrors) as caught:
        build(model_file, labels, outputs)
    (error,) = caught.value.errors
    assert said in error.what
    assert "Own" in error.what


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ("def eval_metrics_fn():\n    return 'accurate'", "names 'accurate'"),
        ("def eval_metrics_fn():\n    return {'a': 3}", "has a metric a that is an int"),
        ("def eval_metrics_fn():\n    return {'a': lambda x, y, z: 1}", "cannot be called"),
    ],
)
def test_values_that_are_not_metrics_are_refused(zoo: ZooFolder, metrics: str, said: str) -> None:
    with pytest.raises(ContractErrors) as caught:
        load(zoo, metrics)
    (error,) = caught.value.errors
    assert said in error.what


def test_metrics_of_different_tasks_do_not_share_states(zoo: ZooFolder) -> None:
    model_file = load(zoo, "def eval_metrics_fn():\n    return {'n': keras.metrics.AUC()}")
    labels, outputs = data(20)
    build(model_file, labels, outputs)
    one, other = model_file.new_metrics(), model_file.new_metrics()
    one.update(tf.constant(labels), tf.constant(outputs))
    counted = {name: sum(float(v.sum()) for v in values) for name, values in other.states()}
    assert counted == {"n": 0.0}
    assert np.isnan(other.result().get("loss", float("nan")))


def test_states_are_exact_beyond_float32(zoo: ZooFolder) -> None:
    model_file = load(
        zoo,
        "def eval_metrics_fn():\n    return {'n': keras.metrics.TruePositives(thresholds=0.0)}",
    )
    labels, outputs = data(8)
    build(model_file, labels, outputs)
    task = model_file.new_metrics()
    task.update(tf.constant(labels), tf.constant(outputs))
    (values,) = dict(task.states())["n"]
    assert values.dtype == np.float64
    assert (values + 2**24) - 2**24 == 8
