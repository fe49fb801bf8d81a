"""Every model of the repository's zoo trains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from example_data import example, float_images
from plain_loop import batches, evaluate, train
from zoo_folder import HELPERS

from edl_worker.core.job import ModelReference
from edl_worker.engines.tensorflow.model import ModelFile, load_model_file
from elasticdl.python.common.constants import Mode

ZOO = Path(__file__).parents[4] / "model_zoo"


def from_zoo(model_def: str, *, purpose: Mode = Mode.TRAINING, **options: str) -> ModelFile:
    return load_model_file(ModelReference(str(ZOO), model_def, **options), purpose=purpose, seed=1)


def assert_learns(
    model_file: ModelFile, records: Sequence[bytes], *, epochs: int = 2
) -> dict[str, float]:
    losses = train(model_file, records, epochs=epochs)
    tenth = max(1, len(losses) // 10)
    assert np.mean(losses[-tenth:]) < 0.7 * np.mean(losses[:tenth]), losses
    return evaluate(model_file, records)


@pytest.mark.parametrize(
    "model_def",
    [
        "mnist.mnist_functional_api",
        "mnist.mnist_functional_api.model",
        "mnist.mnist_subclass.MnistModel",
        "mnist.mnist_spec.MnistSpec",
        "mnist.mnist_input_fn.model",
    ],
)
def test_mnist(model_def: str) -> None:
    metrics = assert_learns(from_zoo(model_def), float_images(120))
    assert set(metrics) == {"loss", "accuracy"}


def test_mnist_takes_parameters_by_name() -> None:
    model_file = from_zoo("mnist.mnist_subclass.MnistModel", params="filters=4, lr=0.5")
    model_file.build(batches(model_file, float_images(4))[0])
    assert float(model_file.optimizer.learning_rate.numpy()) == 0.5
    assert model_file.model.trainable_variables[0].shape == (3, 3, 1, 4)


def test_mnist_gan() -> None:
    """Its generator learns: one that always drew the mean of the pictures would be at 0.51."""
    model_file = from_zoo("mnist.mnist_gan")
    records = float_images(160)
    learned = batches(model_file, records)
    evaluated = batches(model_file, records, mode=Mode.EVALUATION, size=80)
    model_file.build(learned[0])
    own = model_file.custom_train_step
    assert own is not None
    step = tf.function(lambda real: own.run(real, None, None))

    def distance() -> float:
        metrics = model_file.new_metrics()
        for batch in evaluated:
            metrics.add(batch)
        return metrics.result()["distance"]

    assert distance() > 1.0
    nearest = 1.0
    for _ in range(8):
        for batch in learned:
            step(batch.features)
        nearest = min(nearest, distance())
    assert nearest < 0.3


@pytest.mark.parametrize("model_def", ["cifar10_functional_api", "cifar10_subclass"])
def test_cifar10(model_def: str) -> None:
    metrics = assert_learns(from_zoo(f"cifar10.{model_def}"), float_images(100, (32, 32, 3)))
    assert set(metrics) == {"loss", "accuracy", "top_3"}


@pytest.fixture
def employees() -> Callable[..., list[bytes]]:
    """Rows of the SQL statement in the design document: role and age determine the salary."""

    def rows(count: int, *, label: str | None = "salary") -> list[bytes]:
        random = np.random.default_rng(2)
        records = []
        for _ in range(count):
            role = random.integers(0, 3)
            age = random.random()
            values: dict[str, Any] = {
                "name": f"name-{random.integers(0, 50)}".encode(),
                "role": [b"clerk", b"cook", b"pilot"][role],
                "age": np.array([age], np.float32),
            }
            if label:
                values[label] = np.array([role + age], np.float32)
            records.append(example(**values))
        return records

    return rows


@pytest.mark.parametrize("model_def", ["regressor.DNN", "regressor.wide_and_deep.MagicalWAD"])
@pytest.mark.parametrize("input_fn", ["", "sqlflow.elasticdl_input_function"])
def test_regressor(model_def: str, input_fn: str, employees: Callable[..., list[bytes]]) -> None:
    model_file = from_zoo(model_def, input_fn=input_fn)
    metrics = assert_learns(model_file, employees(300), epochs=3)
    assert set(metrics) == {"loss", "mean_absolute_error", "root_mean_squared_error"}
    assert metrics["loss"] == pytest.approx(metrics["root_mean_squared_error"] ** 2, rel=1e-5)


def test_regressor_with_the_parameters_of_the_design_document(
    employees: Callable[..., list[bytes]],
) -> None:
    model_file = from_zoo(
        "regressor.DNN",
        input_fn="sqlflow.elasticdl_input_function",
        params="hidden_units=[10, 100, 20, 5], learning_rate=0.01",
    )
    train(model_file, employees(40))
    widths = [v.shape[1] for v in model_file.model.trainable_variables if len(v.shape) == 2]
    assert widths == [10, 100, 20, 5, 1]


def test_sqlflow_predicts_from_rows_without_the_label(
    employees: Callable[..., list[bytes]],
) -> None:
    model_file = from_zoo("regressor.DNN", purpose=Mode.PREDICTION)
    first, *_ = found = batches(model_file, employees(20, label=None), mode=Mode.PREDICTION)
    model_file.build(first)
    assert [batch.labels for batch in found] == [None, None]
    assert model_file.call(first.features, training=False).shape == (16, 1)


def test_a_parameter_names_the_label_column_of_sqlflow(
    employees: Callable[..., list[bytes]],
) -> None:
    records = employees(20, label="wage")
    named = from_zoo("regressor.DNN", params="label='wage'")
    batch = batches(named, records)[0]
    assert sorted(batch.features) == ["age", "name", "role"]
    assert batch.labels.shape == (16, 1)
    unnamed = from_zoo("regressor.DNN")
    with pytest.raises(Exception, match="which column is the label"):
        batches(unnamed, records)


def test_counting_counts_each_record_once_per_epoch() -> None:
    size, epochs = 97, 3
    model_file = from_zoo("counting", params=f"size={size}")
    records = [example(number=np.array([number])) for number in range(size)]
    train(model_file, records, epochs=epochs, size=10)
    assert model_file.reduction == "sum"
    (counts,) = model_file.model.get_weights()
    np.testing.assert_array_equal(counts.reshape(-1), epochs)
    assert evaluate(model_file, records) == {"loss": -epochs, "mean_count": epochs}


def test_sentiment() -> None:
    random = np.random.default_rng(3)
    words = {0: ["awful", "cold", "rude", "late"], 1: ["lovely", "warm", "kind", "quick"]}
    records = []
    for index in range(200):
        kind = index % 2
        said = [*random.choice(words[kind], 3), *random.choice(["the", "a", "it", "was"], 4)]
        text = " ".join(random.permutation(said))
        records.append(example(text=text.encode(), kind=np.array([kind])))
    model_file = from_zoo("text.sentiment", params="vocabulary=512, length=8")
    metrics = assert_learns(model_file, records)
    assert metrics["auc"] > 0.99


def clicks() -> list[bytes]:
    """Only the numbers determine the label; all records have the same ids."""
    kinds = [index % 2 for index in range(200)]
    return [
        example(
            numbers=np.full(13, 3.0 * kind, np.float32),
            ids=np.arange(26) << 40,
            click=np.array([kind]),
        )
        for kind in kinds
    ]


def people() -> list[bytes]:
    numbers = ("age", "education_years", "capital_gain", "hours_per_week")
    words = ("workclass", "education", "marital_status", "occupation", "relationship", "country")
    return [
        example(
            **{name: np.array([10.0 + 40 * (index % 2)], np.float32) for name in numbers},
            **{name: name.encode() for name in words},
            income=np.array([index % 2]),
        )
        for index in range(200)
    ]


@pytest.mark.parametrize(
    ("model_def", "records"),
    [
        ("ctr.criteo_deepfm", clicks),
        ("ctr.criteo_wide_and_deep", clicks),
        ("ctr.census_deepfm", people),
        ("ctr.census_wide_and_deep", people),
    ],
)
def test_models_with_embedding_tables(model_def: str, records: Callable[[], list[bytes]]) -> None:
    """The rows in a plain loop keep their initial values; the dense layers learn."""
    model_file = from_zoo(model_def, params="dim=4, hidden=[16], lr=0.1")
    metrics = assert_learns(model_file, records(), epochs=4)
    assert metrics["auc"] > 0.99


def test_counting_rows_counts_by_id() -> None:
    model_file = from_zoo("counting_rows")
    records = [example(number=np.array([number])) for number in range(20)]
    assert evaluate(model_file, records) == {"loss": 0.0, "mean_count": 0.0}


def test_counting_columns_counts_by_the_first_column() -> None:
    model_file = from_zoo("counting_columns", params="size=20")
    rows = [f"{number},{19 - number}".encode() for number in range(20)]
    assert evaluate(model_file, rows) == {"loss": 0.0, "mean_count": 0.0}


def test_every_model_file_of_the_zoo_is_tried() -> None:
    here = Path(__file__)
    folder = here.parents[1] / "engines/tensorflow/model"
    others = [folder / f"test_table_{name}.py" for name in ("models", "trees")]
    tried = "".join(file.read_text() for file in (here, *others))
    for path in ZOO.rglob("*.py"):
        name = path.relative_to(ZOO).as_posix()
        dotted = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        assert name in HELPERS or dotted.rpartition(".")[2] in tried, name
