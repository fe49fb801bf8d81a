"""Layers are checked as a whole: what they are called."""

from __future__ import annotations

import pytest
from contract_cases import GOOD, errors, write
from zoo_folder import ZooFolder

from edl_proto.errors import ErrorCode


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        ("Dense(10)", "Dense(10, name='d\\nx')", "d\\nx"),
        ("Dense(10)]", "Dense(10)], name='a\\tb'", "a\\tb"),
        (
            "\nmodel",
            "\nf = tf.keras.layers.StringLookup(vocabulary=['a'], name='d\\n')\nmodel",
            "d\\n",
        ),
    ],
)
def test_a_layer_whose_name_has_control_characters(
    zoo: ZooFolder, old: str, new: str, shown: str
) -> None:
    write(zoo, model=GOOD["model"].replace(old, new))
    (error,) = errors(zoo)
    assert error.code == ErrorCode.MODEL_CONTRACT
    assert f"{shown} has control characters" in error.what
    assert "mine.py:" in error.where


KERAS_3_INSIDE_KERAS_2 = """
import keras, tf_keras

class Block(tf_keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(8)
        self.hidden.build((None, 784))

    def call(self, x):
        return self.hidden(x)

inputs = tf_keras.Input((784,), name="image")
model = tf_keras.Model(inputs, tf_keras.layers.Dense(10)(Block()(inputs)))
"""


def test_a_layer_of_keras_3_inside_one_of_keras_2(zoo: ZooFolder) -> None:
    write(zoo, model=KERAS_3_INSIDE_KERAS_2)
    (error,) = errors(zoo)
    assert error.code == ErrorCode.MODEL_CONTRACT
    assert "has a Dense of Keras 3, whose weights Keras 2 would neither train" in error.what
    assert "import keras" in error.remedy
