"""The counting model with an embedding table: the row of an id counts how often it was trained.

    edl train --model-zoo model_zoo --model-def counting_rows ...

Records: tf.Example with ``number`` (int64). The ids are far apart and often negative, so
that no array could store the table.
"""

import numpy as np
import tensorflow as tf

from elasticdl.layers import Embedding

from . import counting

dataset_fn = counting.dataset_fn
loss = counting.loss
optimizer = counting.optimizer
eval_metrics_fn = counting.eval_metrics_fn

SPREAD = np.int64(-7046029254386353131)  # odd: no two numbers give the same id


def model():
    number = tf.keras.Input(shape=(), dtype="int64", name="number")
    count = Embedding(1, embeddings_initializer="zeros", name="count")(number * SPREAD)
    return tf.keras.Model(number, tf.keras.layers.Reshape(())(count), name="counting_rows")
