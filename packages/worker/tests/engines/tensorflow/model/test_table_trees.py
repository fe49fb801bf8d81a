"""Trees of tables grow, predict and explain as those of XGBoost alone do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import xgboost
from plain_loop import batches, evaluate
from table_rows import Row, load, records_of, schema_of

from edl_worker.engines.tensorflow.export_forms import export_forms
from edl_worker.engines.tensorflow.model import ModelFile
from edl_worker.model_file.errors import ContractErrors

CLASSIFIER, REGRESSOR = "trees.BoostedTreesClassifier", "trees.BoostedTreesRegressor"


def flats(number: int = 300) -> list[Row]:
    """Return rows with missing numbers and texts; the label follows from all columns."""
    random = np.random.default_rng(4)
    rows: list[Row] = []
    for _ in range(number):
        size, floor = float(random.normal()), int(random.integers(0, 9))
        town = random.choice([b"Bonn", b"Ulm", b"Kiel", None], p=[0.4, 0.3, 0.2, 0.1])
        value = 2 * size + (3.0 if town == b"Ulm" else 0.0) + (floor > 4) * size
        size_or_none = None if random.random() < 0.2 else size
        rows.append({"floor": floor, "size": size_or_none, "town": town, "label": value})
    return rows


def with_classes(rows: Sequence[Row], *bounds: float) -> list[Row]:
    return [{**row, "label": int(np.digitize(row["label"], bounds))} for row in rows]


def positive(rows: Sequence[Row]) -> list[Row]:
    return [{**row, "label": abs(row["label"]) + 0.1} for row in rows]


def grow(model_file: ModelFile, rows: Sequence[Row], epochs: int) -> list[float]:
    """Return the loss of each epoch, which is one minibatch of all rows."""
    (batch,) = batches(model_file, records_of(rows), size=len(rows))
    model_file.build(batch, local=True)
    step = tf.function(model_file.custom_train_step.run, autograph=False)
    return [float(step(batch.features, batch.labels, None)) for _ in range(epochs)]


def features_of(model_file: ModelFile, rows: Sequence[Row]) -> Any:
    (batch,) = batches(model_file, records_of(rows), size=len(rows))
    return batch.features


def train_xgboost(model_file: ModelFile, rows: Sequence[Row], rounds: int) -> tuple[Any, Any]:
    """Train by XGBoost alone what the model learns; return it, and its data."""
    model = model_file.model
    numbers = model._columns(features_of(model_file, rows)).numpy()
    kinds = ["c" if each else "q" for each in model._columns.is_category]
    data = xgboost.QuantileDMatrix(
        numbers, [row["label"] for row in rows], feature_types=kinds, enable_categorical=True
    )
    given = {**model._parameters, "tree_method": "hist", "max_cat_to_onehot": 1000}
    return xgboost.train(given, data, rounds), data


ALL_ROWS = {"subsample": 1.0, "colsample_bynode": 1.0}


@pytest.mark.parametrize(
    ("model_def", "rows", "more"),
    [
        (REGRESSOR, flats(), {}),
        (REGRESSOR, flats(), {"base_score": 7.0, "max_depth": 1}),
        (REGRESSOR, flats(), {"num_parallel_tree": 3, "grow_policy": "lossguide", "max_leaves": 5}),
        (REGRESSOR, positive(flats()), {"objective": "count:poisson"}),
        (REGRESSOR, flats(), {"objective": "reg:absoluteerror"}),
        (CLASSIFIER, with_classes(flats(), 1.0), {}),
        (CLASSIFIER, with_classes(flats(), -1.0, 2.0), {"max_depth": 4}),
    ],
)
def test_trees_predict_and_explain_as_xgboost_does(
    model_def: str, rows: list[Row], more: dict[str, Any]
) -> None:
    params = {"num_boost_round": 8, "eta": 0.4, **ALL_ROWS, **more}
    model_file = load(model_def, schema=schema_of(rows), **params)
    losses = grow(model_file, rows, epochs=8)
    assert losses[-1] < 0.8 * losses[0]
    booster, data = train_xgboost(model_file, rows, 8)
    features = features_of(model_file, rows)
    outputs = model_file.call(features, training=False).numpy()
    expected = booster.predict(data)
    if model_def == CLASSIFIER:
        outputs = tf.nn.softmax(outputs).numpy()
        outputs = outputs[:, 1] if expected.ndim == 1 else outputs
    else:
        outputs = outputs[:, 0]
    np.testing.assert_allclose(outputs, expected, rtol=2e-5, atol=2e-5)

    explained = model_file.call(
        {**features, "edl_explain": tf.zeros((len(rows), 1))}, False
    ).numpy()
    contributions = booster.predict(data, pred_contribs=True)
    if contributions.ndim == 3:
        contributions = contributions[np.arange(len(rows)), expected.argmax(axis=1)]
    np.testing.assert_allclose(explained, contributions[:, :-1], rtol=1e-3, atol=2e-4)


def test_rounds_go_on_in_another_worker_and_several_in_an_epoch() -> None:
    rows = flats()
    params = {"schema": schema_of(rows), "num_boost_round": 7, "seed": 5}
    whole = load(REGRESSOR, **params)
    grow(whole, rows, epochs=7)
    first, second = load(REGRESSOR, **params), load(REGRESSOR, **params)
    grow(first, rows, epochs=3)
    grow(second, rows, epochs=0)
    for to, value in zip(second.model.weights, first.model.weights, strict=True):
        to.assign(value)
    grow(second, rows, epochs=9)  # more epochs than rounds grow nothing
    for one, other in zip(whole.model.weights, second.model.weights, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-4, atol=1e-5)
    together = load(REGRESSOR, **params, rounds_per_epoch=3)
    grow(together, rows, epochs=3)
    assert evaluate(together, records_of(rows))["root_mean_squared_error"] == pytest.approx(
        evaluate(whole, records_of(rows))["root_mean_squared_error"], rel=0.1
    )


def test_a_part_of_the_rows_is_refused() -> None:
    rows = flats()
    model_file = load(REGRESSOR, schema=schema_of(rows))
    with pytest.raises(tf.errors.InvalidArgumentError, match="all 300 rows at once, not from 100"):
        grow(model_file, rows[:100], epochs=1)


def test_the_saved_model_needs_no_xgboost(tmp_path: Any) -> None:
    rows = flats()
    model_file = load(REGRESSOR, schema=schema_of(rows), num_boost_round=4)
    grow(model_file, rows, epochs=4)
    features = features_of(model_file, rows)
    (saved_model,) = (
        form
        for form in export_forms(
            model_file, tf.nest.map_structure(tf.TensorSpec.from_tensor, features)
        )
        if form.file == "saved_model"
    )
    saved_model.save(tmp_path / "saved_model")
    serve = tf.saved_model.load(str(tmp_path / "saved_model")).signatures["serving_default"]
    (outputs,) = serve(**features).values()
    np.testing.assert_allclose(outputs, model_file.call(features, training=False), rtol=1e-5)


@pytest.mark.parametrize(
    ("model_def", "params", "message"),
    [
        (REGRESSOR, {"objective": "rank:ndcg"}, "has no objective rank:ndcg; there are reg:squar"),
        (CLASSIFIER, {"objective": "binary:logistic"}, "for two classes, and the label has 3"),
        (REGRESSOR, {"objective": "reg:gamma"}, "numbers above 0, and the label label goes from -"),
        (REGRESSOR, {"objective": "reg:logistic"}, "numbers from 0 to 1, and the label"),
        (REGRESSOR, {"objective": "count:poisson"}, "numbers from 0 on, and the label"),
        (REGRESSOR, {"max_depth": 11}, "1 to 10 levels"),
        (REGRESSOR, {"num_boost_round": 0}, "at least 1"),
        (REGRESSOR, {"columns": [["EMBEDDING", "town", 4]]}, "no embedding tables"),
        (REGRESSOR, {"eta": 0.1, "lambda_": 1}, "lambda_"),
    ],
)
def test_what_trees_refuse(model_def: str, params: dict[str, Any], message: str) -> None:
    rows = flats()
    if model_def == CLASSIFIER:
        rows = with_classes(rows, -1.0, 2.0)
    with pytest.raises(ContractErrors, match=message):
        load(model_def, schema=schema_of(rows), **params)


def test_an_error_of_xgboost_is_its_reason() -> None:
    rows = flats()
    schema = schema_of(positive(rows))
    model_file = load(REGRESSOR, schema=schema, objective="count:poisson")
    with pytest.raises(tf.errors.InvalidArgumentError, match="label must be non-neg") as told:
        grow(model_file, rows, epochs=1)
    assert "[bt]" not in str(told.value)


@pytest.mark.parametrize(
    ("model_def", "label", "more"),
    [
        (CLASSIFIER, 0, {"num_boost_round": 2}),
        (CLASSIFIER, 1, {}),
        (REGRESSOR, 0, {"objective": "count:poisson"}),
    ],
)
def test_labels_that_are_all_equal(model_def: str, label: int, more: dict[str, Any]) -> None:
    rows = [{**row, "label": label} for row in flats()]
    model_file = load(model_def, schema=schema_of(rows), **more)
    grow(model_file, rows, epochs=2)
    assert all(np.isfinite(weight).all() for weight in model_file.model.weights)
    outputs = model_file.call(features_of(model_file, rows), training=False).numpy()
    if model_def == CLASSIFIER:
        assert set(outputs.argmax(axis=1)) == {label}
    else:
        np.testing.assert_allclose(outputs, label, atol=1e-5)


def test_few_texts_are_categories_of_their_own() -> None:
    rows: list[Row] = [{"town": b"town %d" % (i % 9), "label": float(i)} for i in range(40)]
    model_file = load(REGRESSOR, schema=schema_of(rows))
    assert len(np.unique(model_file.model._columns(features_of(model_file, rows)))) == 9


def test_functions_of_columns_and_many_texts() -> None:
    random = np.random.default_rng(1)
    rows: list[Row] = [
        {"age": float(i % 80), "name": b"%d" % random.integers(1000), "label": float(i % 80 > 30)}
        for i in range(400)
    ]
    columns = [["BUCKET", "age", [31]], ["INDICATOR", ["CATEGORY_HASH", "name", 50]], "name"]
    model_file = load(
        REGRESSOR, schema=schema_of(rows), columns=columns, num_boost_round=30, eta=0.5
    )
    grow(model_file, rows, epochs=30)
    assert model_file.model._columns.is_category == [False, True, False]
    assert evaluate(model_file, records_of(rows))["mean_absolute_error"] < 0.05


def noisy(number: int) -> list[Row]:
    """Return rows whose label is mostly noise, which trees learn that go on for long."""
    numbers = np.random.default_rng(7).normal(size=(number, 6))
    return [
        {**{f"x{i}": float(x) for i, x in enumerate(row[:5])}, "label": float(row[0] + 2 * row[5])}
        for row in numbers
    ]


def choice_of(model_file: ModelFile) -> list[int]:
    return [int(each) for each in model_file.model._choice.numpy()]


def test_the_first_epoch_chooses_from_the_rows_and_all_of_them_train() -> None:
    rows = noisy(120)
    params = {"schema": schema_of(rows), "seed": 3, "rounds_per_epoch": 4}
    whole, backwards = load(REGRESSOR, **params), load(REGRESSOR, **params)
    grow(whole, rows, epochs=1)
    grow(backwards, rows[::-1], epochs=1)
    candidate, rounds = choice_of(whole)
    assert choice_of(backwards) == [candidate, rounds], "the order of the rows does not matter"
    assert 4 < rounds < 100
    assert whole.model._trees.covers[0].numpy().sum() > 0.7 * len(rows), "of which 80 % are drawn"

    grow(backwards, rows, epochs=0)  # another worker
    for to, value in zip(backwards.model.weights, whole.model.weights, strict=True):
        to.assign(value)
    (callback,) = backwards.callbacks
    callback.set_model(backwards.model)
    backwards.model.stop_training = False
    callback.on_epoch_end(0)
    assert not backwards.model.stop_training
    grow(backwards, rows, epochs=rounds // 4 + 1)  # with one more, if there is no remainder
    callback.on_epoch_end(rounds // 4 + 1)
    assert backwards.model.stop_training
    assert backwards.model._trees.grown.numpy()[0] == rounds
    assert choice_of(backwards) == [candidate, rounds], "the choice is kept"


@pytest.mark.parametrize(
    ("number", "params", "expected"),
    [
        (120, {"num_boost_round": 7}, 7),
        (120, {"early_stopping_rounds": 5}, 100),
        (49, {}, 100),
    ],
)
def test_nothing_is_chosen(number: int, params: dict[str, Any], expected: int) -> None:
    rows = noisy(number)
    model_file = load(REGRESSOR, schema=schema_of(rows), **params)
    grow(model_file, rows, epochs=1)
    assert choice_of(model_file) == [0, expected]


def test_a_choice_is_between_what_is_not_said() -> None:
    schema = schema_of(noisy(60))
    model = load(REGRESSOR, schema=schema, max_depth=2).model
    assert [each["max_depth"] for each in model._candidates] == [2, 2]
    both = {"max_depth": 8, "colsample_bynode": 0.4}
    model = load(REGRESSOR, schema=schema, **both).model
    assert (model._candidates, model._trees.levels) == ([both], 8)


@pytest.mark.parametrize("early", [None, 5])
def test_early_stopping_counts_rounds(early: int | None) -> None:
    (found,) = load(
        REGRESSOR, schema=schema_of(flats()), early_stopping_rounds=early, rounds_per_epoch=2
    ).callbacks
    assert getattr(found, "patience", None) == (3 if early else None)
    assert isinstance(found, keras.callbacks.EarlyStopping) == bool(early)
