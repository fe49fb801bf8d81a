"""Features reach the inputs of a model by name, by position or unchanged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from model_files import LOSS, MODEL, REST, SUBCLASS
from zoo_folder import ZooFolder

from edl_worker.core.batch import Batch
from elasticdl.python.common.constants import Mode


def call(zoo: ZooFolder, model: str, features: Any, columns: str = "") -> Any:
    zoo.write("mine.py", model + REST + LOSS + columns)
    model_file = zoo.load("mine", purpose=Mode.PREDICTION)
    model_file.build(Batch(features, None, 3))
    return model_file.call(features, training=False)


TWO = """
left, right = tf.keras.Input((2,), name="left"), tf.keras.Input((2,), name="right")
model = tf.keras.Model({inputs}, left - 2 * right)
"""
A, B = tf.fill((3, 2), 5.0), tf.fill((3, 2), 1.0)


@pytest.mark.parametrize(
    "inputs", ["[left, right]", "(left, right)", "{'left': left, 'right': right}", "[right, left]"]
)
@pytest.mark.parametrize(
    "features", [{"right": B, "left": A}, {"left": A, "right": B, "unused": A}]
)
def test_inputs_are_matched_by_name(zoo: ZooFolder, inputs: str, features: Any) -> None:
    np.testing.assert_array_equal(call(zoo, TWO.format(inputs=inputs), features), 3.0)


@pytest.mark.parametrize(
    ("inputs", "value"),
    [
        ("{'a': left, 'b': right}", 3.0),
        ("{'b': left, 'a': right}", -9.0),
        ("{'right': left, 'left': right}", -9.0),
        ("{'c': left, 'd': right}", 3.0),
    ],
)
def test_keys_of_inputs_go_before_their_names(zoo: ZooFolder, inputs: str, value: float) -> None:
    # As in Keras, where no key has to be the name of an input.
    features = {"a": A, "b": B, "left": A, "right": B}
    np.testing.assert_array_equal(call(zoo, TWO.format(inputs=inputs), features), value)


def test_inputs_are_matched_by_position_without_names(zoo: ZooFolder) -> None:
    np.testing.assert_array_equal(call(zoo, TWO.format(inputs="[left, right]"), (A, B)), 3.0)


def test_columns_match_inputs_by_position(zoo: ZooFolder) -> None:
    columns = """
def feature_columns():
    return [tf.feature_column.numeric_column(key, shape=[2]) for key in ("zeta", "alpha")]
"""
    found = call(zoo, TWO.format(inputs="[left, right]"), {"alpha": B, "zeta": A}, columns)
    np.testing.assert_array_equal(found, 3.0)


@pytest.mark.parametrize(
    "features",
    [tf.ones((3, 2)), {"x": tf.ones((3, 2))}, {"y": tf.ones((3, 2), tf.int32)}, [tf.ones((3, 2))]],
)
def test_a_single_feature_goes_to_the_single_input(zoo: ZooFolder, features: Any) -> None:
    assert call(zoo, MODEL, features).shape == (3, 1)


@pytest.mark.parametrize(
    ("signature", "body", "features"),
    [
        ("inputs", "self.dense(inputs)", {"x": A}),
        ("inputs", "self.dense(inputs)", A),
        ("inputs", "self.dense(inputs['x'])", {"x": A}),
        ("inputs", "self.dense(inputs['x'] - inputs['y'])", {"x": A, "y": B}),
        ("inputs, training=False", "self.dense(inputs.get('x'))", {"x": A}),
        ("inputs: dict", "self.dense(self.layer(inputs))", {"x": A}),
        ("inputs", "self.dense(self.layer(inputs))", {"x": A}),
        ("inputs", "self.dense(self.layer(inputs))", {"x": A, "y": B}),
        ("x, y", "self.dense(x - y)", {"y": B, "x": A}),
        ("inputs", "self.dense(inputs[0] - inputs[1])", (A, B)),
    ],
)
def test_a_subclassed_model_gets_the_features_that_its_call_takes(
    zoo: ZooFolder, signature: str, body: str, features: Any
) -> None:
    model = SUBCLASS.format(signature=signature, body=body)
    assert call(zoo, model + "\nmodel = Net()\n", features).shape == (3, 1)
