"""The networks of tables train by a recipe, of which a model shows the parts."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from plain_loop import train
from table_rows import Row, load, records_of, schema_of


@pytest.mark.parametrize("kind", ["regressor", "classifier"])
@pytest.mark.parametrize("name", ["DNN", "deepfm.DeepFM", "wide_and_deep."])
def test_the_rate_falls_to_zero_whatever_it_begins_with(kind: str, name: str) -> None:
    wide = {"regressor": "MagicalWAD", "classifier": "WideAndDeep"}[kind]
    model_def = f"{kind}.{name}" + (wide if name.endswith(".") else "")
    rows: list[Row] = [{"x": 0.5 * i, "label": i % 2} for i in range(4)]
    model_file = load(model_def, schema=schema_of(rows), learning_rate=0.08)
    model = model_file.model
    model.optimizer = model_file.optimizer
    (callback,) = model_file.callbacks
    callback.set_model(model)
    callback.set_params({"epochs": 4})
    callback.on_train_begin()
    rates = []
    for epoch in range(4):
        callback.on_epoch_begin(epoch)
        rates.append(float(model.optimizer.learning_rate))
    np.testing.assert_allclose(rates, [0.08, 0.0683, 0.04, 0.0117], rtol=0.01)


def test_a_schedule_of_the_optimizer_gives_the_rate() -> None:
    rows: list[Row] = [{"x": 0.5 * i, "label": i % 2} for i in range(4)]
    model_file = load("regressor.DNN", schema=schema_of(rows))
    schedule = tf.keras.optimizers.schedules.ExponentialDecay(0.5, 1, 0.9)
    model_file.model.optimizer = tf.keras.optimizers.SGD(schedule)
    (callback,) = model_file.callbacks
    callback.set_model(model_file.model)
    callback.set_params({"epochs": 4})
    callback.on_train_begin()
    callback.on_epoch_begin(2)
    assert float(model_file.model.optimizer.learning_rate) == 0.5


def test_weights_decay_if_there_is_no_embedding_table() -> None:
    for kinds, decay in ((100, 2.0), (101, 0.0)):
        rows: list[Row] = [{"x": f"kind-{i % kinds}".encode(), "label": i % 2} for i in range(202)]
        model_file = load("classifier.DNN", schema=schema_of(rows))
        assert model_file.optimizer.weight_decay == decay
    given = load("classifier.DNN", schema=schema_of(rows), weight_decay=0.5)
    assert given.optimizer.weight_decay == 0.5


@pytest.mark.parametrize("hidden_units", [[8], []])
def test_a_network_bounds_numbers_and_a_linear_model_does_not(hidden_units: list[int]) -> None:
    rows: list[Row] = [{"x": float(i % 2), "label": 2.0 * (i % 2)} for i in range(64)]
    model_file = load("regressor.DNN", schema=schema_of(rows), hidden_units=hidden_units)
    train(model_file, records_of(rows), epochs=3)
    far, farther = (
        float(np.asarray(model_file.call({"x": tf.constant([[x]])}, training=False))[0, 0])
        for x in (1e4, 1e6)
    )
    assert (abs(farther) > 50 * abs(far)) == (not hidden_units)
