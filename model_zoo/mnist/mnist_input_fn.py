"""MNIST with an input_fn of records and with feature and label columns.

Records: tf.Example with ``image`` (784 bytes, or 28×28 floats from 0 to 255) and ``label``
(int64). Rows of a CSV file with the columns ``image`` and ``label`` work too.
"""

import numpy as np
import tensorflow as tf

from .mnist_functional_api import eval_metrics_fn

inputs = tf.keras.Input(shape=(28, 28, 1), name="img")
x = tf.keras.layers.Conv2D(32, kernel_size=(3, 3), activation="relu")(inputs)
x = tf.keras.layers.Conv2D(64, kernel_size=(3, 3), activation="relu")(x)
x = tf.keras.layers.BatchNormalization(momentum=0.9)(x)
x = tf.keras.layers.MaxPooling2D(pool_size=(2, 2))(x)
x = tf.keras.layers.Dropout(0.25)(x)
x = tf.keras.layers.Flatten()(x)
outputs = tf.keras.layers.Dense(10)(x)

model = tf.keras.Model(inputs=inputs, outputs=outputs, name="mnist_model")


def input_fn(records):
    """Turns a list of dictionaries into a minibatch."""
    images, labels = [], []
    for record in records:
        image = record["image"]
        if isinstance(image, bytes):
            image = np.frombuffer(image, dtype=np.uint8)
        images.append(np.reshape(image, (28, 28)).astype(np.float32) / 255)
        labels.append(record["label"])
    return {"image": np.stack(images)}, np.array(labels, np.int32)


def feature_columns():
    # Column i feeds input i of the model and is reshaped to it.
    return [
        tf.feature_column.numeric_column(key="image", dtype=tf.dtypes.float32, shape=[1, 28, 28])
    ]


def label_columns():
    return [tf.feature_column.numeric_column(key="label", dtype=tf.dtypes.int32, shape=[1])]


def loss(output, labels):
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=output)
    )


def optimizer(lr=0.001):
    return tf.keras.optimizers.Adam(lr)
