"""An error of a layer says what the layer got, from which layer, and what to do about that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import pytest
from keras import layers

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.engines.tensorflow import internals
from edl_worker.model_file.errors import user_code_error
from edl_worker.model_file.raising_layer import use_producers
from edl_worker.model_file.zoo import compatibility

use_producers(internals.producer)


def error_of(make: Callable[[], Any]) -> EdlError:
    """Return what a model file that contains these lines is told."""
    with compatibility.provide_removed_names():
        try:
            make()
        except Exception as error:
            return user_code_error(
                error,
                Path(__file__).parent,
                code=ErrorCode.MODEL_IMPORT,
                action="it raised",
                place="",
                remedy="",
            )
    raise AssertionError("nothing was raised")


def stack_lstms() -> None:
    keras.Sequential(
        [
            keras.Input((12, 3)),
            layers.LSTM(8, name="first"),
            layers.LSTM(4, name="second"),
        ]
    )


def pool_too_often() -> None:
    model = keras.Sequential([keras.Input((4, 4, 1))])
    for number in range(3):
        model.add(layers.MaxPooling2D(name=f"pool{number}"))


def join_ranks() -> None:
    age, income = keras.Input((), name="age"), keras.Input((1,), name="income")
    layers.concatenate([layers.Rescaling(2.0)(age), income])


@pytest.mark.parametrize(
    ("make", "what", "remedy"),
    [
        (stack_lstms, "second gets (n, 8) from first", "return_sequences=True in first"),
        (pool_too_often, "pool2 gets (n, 1, 1, 1) from pool1", 'padding="same"'),
        (join_ranks, "(n, 1) from income", "keras.Input((1,), ...) for the input age"),
        (
            lambda: layers.Conv2D(8, 3)(keras.Input((8, 8), name="image")),
            "gets (n, 8, 8) from image",
            "keras.Input((8, 8, 1))",
        ),
        (
            lambda: layers.GRU(8)(keras.Input((8,), name="series")),
            "gets (n, 8) from series",
            "keras.Input((8, 1))",
        ),
        (
            lambda: layers.LSTM(8)(layers.Flatten(name="flat")(keras.Input((8, 3)))),
            "gets (n, 24) from flat",
            "Leave flat out",
        ),
        (
            lambda: layers.MultiHeadAttention(2, 4)(keras.Input((8, 3), name="x")),
            "gets (n, 8, 3) from x",
            "MultiHeadAttention(...)(query, value)",
        ),
        (
            lambda: layers.BatchNormalization(axis=3)(keras.Input((8,), name="x")),
            "gets (n, 8) from x",
            "axis=3 is no dimension",
        ),
    ],
)
def test_what_a_layer_gets_and_what_to_do(make: Callable[[], Any], what: str, remedy: str) -> None:
    found = error_of(make)
    assert what in found.what
    assert remedy in found.remedy


def test_the_line_of_a_layer_in_a_list() -> None:
    line = stack_lstms.__code__.co_firstlineno + 5
    assert error_of(stack_lstms).where == f"{__file__}:{line}, stack_lstms"


@pytest.mark.parametrize(
    ("make", "remedy"),
    [
        (lambda: layers.Dropout(20), "Correct rate=20 in `"),
        (lambda: layers.Dense("32"), "units='32'"),
        (lambda: layers.Bidirectional(layers.LSTM), "Write LSTM(...), which makes an object"),
        (
            lambda: keras.callbacks.ModelCheckpoint("best.h5", save_weights_only=True),
            "must end in `.weights.h5`",
        ),
        (
            lambda: keras.applications.MobileNetV2(
                input_shape=(8, 8, 3), weights=None, include_top=False
            ),
            "Input size must be at least 32x32.",
        ),
        (lambda: layers.Dense(3, kernel_regularizer=0.01), "keras.regularizers.L2(0.01)"),
        (lambda: layers.Dense(3, kernel_initializer="zebra"), "GlorotUniform, "),
    ],
)
def test_what_keras_says_a_value_must_be(make: Callable[[], Any], remedy: str) -> None:
    assert remedy in error_of(make).remedy
