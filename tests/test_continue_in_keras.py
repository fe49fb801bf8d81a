"""``model.keras`` continues where the job has ended, as if Keras had trained it all the time."""

from __future__ import annotations

import runpy
from pathlib import Path

import keras
import numpy as np
import pytest
from conftest import Edl

MODEL = """
import keras
import tensorflow as tf

model = keras.Sequential([
    keras.Input((3,), name="x"),
    keras.layers.Dense(5, activation="tanh",
                       kernel_initializer=keras.initializers.GlorotUniform(seed=1)),
    keras.layers.BatchNormalization(),
    keras.layers.Dense(1, kernel_initializer=keras.initializers.GlorotUniform(seed=2)),
])

def dataset_fn(dataset, mode):
    def parse(row):
        a, b, c, label = tf.io.decode_csv(row, [[0.0]] * 4)
        return tf.stack([a, b, c]), [label]
    return dataset.map(parse)

loss = keras.losses.BinaryCrossentropy(from_logits=True)
optimizer = keras.optimizers.{optimizer}
def eval_metrics_fn():
    return {{"accuracy": keras.metrics.BinaryAccuracy(threshold=0.0, name="accuracy")}}
"""
RECORDS, SIZE, BEFORE, AFTER = 256, 32, 3, 2


# With and without parameter servers; the worker's tests have every optimizer.
@pytest.mark.parametrize(
    ("optimizer", "more"),
    [
        ("Nadam(keras.optimizers.schedules.ExponentialDecay(0.05, 8, 0.9))", ()),
        ("RMSprop(0.01, momentum=0.9)", ("--parameter-servers", "2")),
    ],
)
def test_fit_continues_as_if_keras_had_trained_the_model_from_the_beginning(
    edl: Edl, tmp_path: Path, optimizer: str, more: tuple[str, ...]
) -> None:
    (tmp_path / "zoo").mkdir()
    file = tmp_path / "zoo" / "small.py"
    file.write_text(MODEL.format(optimizer=optimizer))
    table = np.random.default_rng(7).normal(size=(RECORDS, 4)).astype(np.float32).round(4)
    table[:, 3] = table[:, 0] > table[:, 1]
    np.savetxt(
        tmp_path / "data.csv", table, "%.4f", delimiter=",", header="a,b,c,label", comments=""
    )
    edl(
        *("train", "--model-zoo", str(file.parent), "--model-def", "small", "--no-shuffle"),
        *("--data", str(tmp_path / "data.csv"), "--minibatch-size", str(SIZE)),
        *("--num-epochs", str(BEFORE), "--output", str(tmp_path / "model"), *more),
    )

    def fit(model: keras.Model, epochs: int) -> keras.callbacks.History:
        x, y = table[:, :3], table[:, 3:]
        return model.fit(x, y, SIZE, epochs=epochs, shuffle=False, verbose=0)

    # Adam begins with steps as large as the learning rate, so a lost state would show.
    continued = keras.models.load_model(tmp_path / "model" / "model.keras")
    assert continued.optimizer.iterations == BEFORE * RECORDS // SIZE
    history = fit(continued, AFTER)
    assert set(history.history) == {"loss", "accuracy"}

    names = runpy.run_path(str(file))
    whole = names["model"]
    whole.compile(names["optimizer"], names["loss"])
    fit(whole, BEFORE + AFTER)
    for mine, keras_own in zip(continued.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_allclose(mine, keras_own, rtol=1e-3, atol=1e-4)
