"""Labels that the loss cannot take are found in every minibatch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import pytest
import tensorflow as tf

from edl_proto.errors import ErrorCode
from edl_worker.core.batch import Batch
from edl_worker.engines.tensorflow.model import label_check
from edl_worker.engines.tensorflow.model.description import LossFunction
from edl_worker.engines.tensorflow.model.label_check import LabelCheck, make_label_check
from edl_worker.model_file.bad_records import LabelError

SPARSE = "sparse_categorical_crossentropy"


def make(loss: Any, units: int, first: Any) -> LabelCheck | None:
    activation = "softmax" if units > 1 else "sigmoid"
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(units, activation=activation)])
    function = LossFunction(lambda **_: 0, "mean", "loss", "m.py:3, loss", {"loss": loss})
    return make_label_check(function, model, first, tf.TensorSpec((None, units)))


def run(check: LabelCheck, *labels: Any, weights: Any = None) -> int:
    batches: Iterator[Batch] = (Batch(None, each, len(each), weights) for each in labels)
    return sum(1 for _ in check.check(batches))


@pytest.mark.parametrize(
    ("loss", "units", "first", "later", "what", "remedy"),
    [
        (SPARSE, 3, [0, 1], [2, 3], "classes 0 to 2, and the labels are 0 to 3", "at least 4"),
        (SPARSE, 3, [1, 2], [3], "classes 0 to 2, and the labels are 1 to 3", "label - 1"),
        (SPARSE, 3, [0, 1], [-1], "the labels are -1 to 1", "ignore_class"),
        ("binary_crossentropy", 1, [[0.0], [1.0]], [[2.0]], "a label is 2", "softmax"),
        ("binary_crossentropy", 1, [[0.0], [1.0]], [[1.5]], "a label is 1.5", "from 0 to 1"),
        ("categorical_crossentropy", 2, [[0, 1]], [[0, 1], [0, 0]], "no class", "tf.one_hot"),
    ],
)
def test_a_label_out_of_range_in_a_later_minibatch(
    loss: str, units: int, first: Any, later: Any, what: str, remedy: str
) -> None:
    good, bad = tf.constant(first), tf.constant(later)
    check = make(loss, units, good)
    assert check is not None
    assert run(check, good, good) == 2
    for _ in range(2):  # it is found again when the record is searched
        with pytest.raises(LabelError) as caught:
            run(check, good, bad)
        assert caught.value.code == ErrorCode.SHAPE_MISMATCH
        assert what in caught.value.what
        assert remedy in caught.value.remedy
        assert caught.value.where == "m.py:3, loss"


def test_labels_that_the_loss_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    check = make(SPARSE, 10, tf.constant([0, 9]))
    assert check is not None
    monkeypatch.setattr(label_check, "find_misfit", lambda *_: pytest.fail("they are in range"))
    assert run(check, tf.constant([3]), tf.constant([9, 0]), tf.constant([], tf.int32)) == 3


def test_soft_labels_are_not_checked() -> None:
    assert make("categorical_crossentropy", 2, tf.constant([[0.3, 0.7]])) is None


def test_a_class_that_the_loss_ignores() -> None:
    ignoring = keras.losses.SparseCategoricalCrossentropy(ignore_class=-1)
    check = make(ignoring, 3, tf.constant([0, 2]))
    assert check is not None
    assert run(check, tf.constant([-1, 1]), tf.constant([-1])) == 2


def test_examples_with_weights_may_have_any_label() -> None:
    check = make("binary_crossentropy", 1, tf.constant([[0.0], [1.0]]))
    assert check is not None
    assert run(check, tf.constant([[-1.0]]), weights=tf.constant([0.0])) == 1


def test_losses_of_numbers_and_own_losses_take_any_label() -> None:
    assert make("mse", 1, tf.constant([[0.5]])) is None
    assert make(lambda y, p: p - y, 1, tf.constant([[0.5]])) is None
