"""The engine of TensorFlow passes the suite of engines, and takes the masks of Keras."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from engine_suite import EngineSuite
from zoo_folder import ZooFolder

from edl_worker.core.batch import Batch
from edl_worker.engines.tensorflow.framework import TensorFlow
from edl_worker.engines.tensorflow.keras_model import LoadedKerasModel


class TestTensorFlow(EngineSuite):
    framework = TensorFlow()


WORDS = """
import tensorflow as tf

def build_model():
    words = tf.keras.Input((6,), dtype="int64", name="words")
    vectors = tf.keras.layers.Embedding(9, 4, mask_zero=True)(words)
    each = tf.keras.layers.GRU(5, return_sequences=True)(vectors)
    return tf.keras.Model(words, tf.keras.layers.Dense(3, activation="softmax")(each))

def dataset_fn(dataset, mode):
    return dataset

optimizer = tf.keras.optimizers.SGD(0.1)
loss = "sparse_categorical_crossentropy"
metrics = ["accuracy"]
"""


def test_an_evaluation_leaves_out_what_a_mask_leaves_out(zoo: ZooFolder) -> None:
    zoo.write("mine.py", WORDS, imports=False)
    file = zoo.load("mine", seed=1)
    draw = np.random.default_rng(2)
    words = draw.integers(1, 9, (12, 6)) * (np.arange(6) < draw.integers(1, 6, (12, 1)))
    batch = Batch({"words": tf.constant(words)}, tf.constant(words % 3), len(words))
    file.build(batch)
    engine = LoadedKerasModel(file, zoo.root, batch)
    metrics = engine.new_metrics()
    metrics.add(batch, engine.infer)

    model = file.model
    model.compile(loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    wanted = model.evaluate(words, words % 3, verbose=0, return_dict=True)
    assert metrics.result() == pytest.approx(wanted, rel=1e-5)
