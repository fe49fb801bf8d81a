"""The data of ``fit``: what it may be, and how it is split and weighed."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from edl.plugins.errors import Problem
from edl_keras.fit_data import (
    ArrayData,
    fit_labels,
    read_data,
    read_validation_data,
    same_layout,
    split_data,
    weigh_classes,
)


class Column:
    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def to_numpy(self) -> Any:
        return np.array(self._values)


class Table:
    """A stand-in for a DataFrame of pandas."""

    def __init__(self, **columns: list[Any]) -> None:
        self.columns = list(columns)
        self._values = columns

    def __getitem__(self, name: str) -> Column:
        return Column(self._values[name])

    def to_numpy(self) -> Any:
        return np.array(list(self._values.values())).T


def test_a_table_of_numbers_is_an_array_and_one_with_texts_has_columns() -> None:
    numbers = read_data(Table(a=[1, 2], b=[3, 4]), Column([0, 1]))
    np.testing.assert_array_equal(numbers.x, [[1, 3], [2, 4]])
    np.testing.assert_array_equal(numbers.y, [0, 1])
    mixed = read_data(Table(a=[1, 2], b=["u", "v"]))
    assert sorted(mixed.x) == ["a", "b"]


def test_pipelines_are_read_once_with_their_batches() -> None:
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices(({"a": [1.0, 2, 3]}, [0, 1, 2])).batch(2)
    data = read_data(dataset)
    np.testing.assert_array_equal(data.x["a"], [1, 2, 3])
    assert (data.count, data.batch_size, data.weights) == (3, 2, None)
    with pytest.raises(Problem, match="without an end"):
        read_data(dataset.repeat())
    with pytest.raises(Problem, match="does not yield batches"):
        read_data(dataset.unbatch())
    with pytest.raises(Problem, match="yields labels and weights itself"):
        read_data(dataset, np.zeros(3))
    with pytest.raises(Problem, match="divides arrays"):
        split_data(data, 0.5)


@pytest.mark.parametrize(
    ("x", "y", "what"),
    [
        (np.zeros((3, 2)), np.zeros(2), "x has 3, y has 2"),
        ({"a": np.zeros(3), "b": np.zeros(4)}, np.zeros(3), r"x\['a'\] has 3, x\['b'\] has 4"),
        (np.zeros((0, 2)), np.zeros(0), "the data has no rows"),
        ((row for row in [1]), None, "x is generator, not an array"),
        (np.float32(3), None, "x is numpy float32"),
        ("text", None, "x is a text"),
    ],
)
def test_what_is_no_data_is_refused(x: Any, y: Any, what: str) -> None:
    with pytest.raises(Problem, match=what) as caught:
        read_data(x, y)
    assert caught.value.where == "fit(x=...)"


def test_the_last_rows_validate_as_in_keras() -> None:
    data = read_data(np.arange(10), np.arange(10), np.ones(10))
    training, validation = split_data(data, 0.25)
    assert validation is not None
    assert training.x.tolist() == list(range(7))
    assert validation.y.tolist() == [7, 8, 9]
    assert len(validation.weights) == 3
    for part in (1.5, -1, 0.95):
        with pytest.raises(Problem, match="validation_split"):
            split_data(read_data(np.arange(10)), part)


def test_validation_data_has_the_form_of_the_training_data() -> None:
    one = read_data(np.zeros((3, 2), np.int64), np.zeros(3)).layout()
    other = read_validation_data((np.zeros((2, 2)), np.zeros(2))).layout()
    joined = same_layout(one, other)
    assert [(each.stored, each.dtype) for each in joined.x] == [("float", "float32")]
    wrong = read_validation_data((np.zeros((2, 5)), np.zeros(2))).layout()
    with pytest.raises(Problem, match=r"validation data has x of \[5\].*training data x of \[2\]"):
        same_layout(one, wrong)
    with pytest.raises(Problem, match=r"not \(x, y\)"):
        read_validation_data(np.zeros(3))


def test_weights_of_classes_are_weights_of_rows() -> None:
    weighed = weigh_classes(read_data(np.zeros(4), np.array([0, 1, 2, 1])), {1: 5.0, 2: 0.5})
    assert weighed.weights.tolist() == [1, 5, 0.5, 5]
    one_hot = weigh_classes(read_data(np.zeros(2), np.eye(3)[[2, 0]]), {2: 3.0})
    assert one_hot.weights.tolist() == [3, 1]
    with pytest.raises(Problem, match="cannot be combined"):
        weigh_classes(weighed, {1: 2.0})


def test_labels_get_the_rank_of_the_output() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    data = ArrayData(np.zeros((3, 2)), np.zeros(3))
    assert fit_labels(data, model).y.shape == (3, 1)
    classes = keras.Sequential([keras.Input((2,)), keras.layers.Dense(5)])
    assert fit_labels(data, classes).y.shape == (3,)
