"""Data that is sorted by label: what a job learns of it equals what Keras learns."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
from conftest import NO_EVALUATION_BEFORE_THE_END, Edl

import digits

MODEL = """
import keras
import tensorflow as tf


def custom_model():
    return keras.Sequential(
        [
            keras.Input((784,)),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Dense(64, "relu"),
            keras.layers.Dense(10),
        ]
    )


loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def optimizer():
    return keras.optimizers.Adam(0.001)


def dataset_fn(dataset, mode):
    features = {
        "image": tf.io.FixedLenFeature([784], tf.float32),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }

    def parse(record):
        example = tf.io.parse_single_example(record, features)
        return example["image"], example["label"]

    return dataset.map(parse)


def eval_metrics_fn():
    return {"accuracy": keras.metrics.SparseCategoricalAccuracy()}
"""
TRAINED, EPOCHS, BATCH = 1437, 8, 32


def fit(images: np.ndarray, labels: np.ndarray, seed: int) -> float:
    """Return the accuracy of Keras on the same data."""
    keras.utils.set_random_seed(seed)
    here: dict[str, object] = {}
    exec(MODEL, here)
    model = here["custom_model"]()  # type: ignore[operator]  # a function
    model.compile(here["optimizer"](), here["loss"], metrics=["accuracy"])  # type: ignore[operator]  # too
    x = images.reshape(-1, 784)
    model.fit(x[:TRAINED], labels[:TRAINED], BATCH, EPOCHS, verbose=0)
    return float(model.evaluate(x[TRAINED:], labels[TRAINED:], verbose=0)[1])


def test_a_job_on_sorted_data_learns_as_much_as_keras(edl: Edl, tmp_path: Path) -> None:
    images, labels = digits.load()
    order = np.argsort(labels[:TRAINED], kind="stable")
    digits.write(tmp_path / "train", digits.records(images[order], labels[order]), 2, "digits")
    held_out = digits.records(images[TRAINED:], labels[TRAINED:])
    digits.write(tmp_path / "test", held_out, 1, "digits")
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo" / "sorted_digits.py").write_text(MODEL)

    def train(*more: str) -> float:
        name = f"j{len(more)}"
        edl(
            *("train", "--name", name, "--model-zoo", str(tmp_path / "zoo")),
            *("--model-def", "sorted_digits", "--data", str(tmp_path / "train")),
            *("--validation-data", str(tmp_path / "test"), "--num-epochs", str(EPOCHS)),
            *("--minibatch-size", str(BATCH), "--output", str(tmp_path / name)),
            *(*NO_EVALUATION_BEFORE_THE_END, *more),
        )
        return float(edl.status(name)["metrics"]["accuracy"])

    by_keras = [fit(images, labels, seed) for seed in range(2)]
    assert min(by_keras) > 0.93, "it has learned something"
    assert train() > min(by_keras) - 0.02
    assert train("--no-shuffle") < min(by_keras) - 0.08
