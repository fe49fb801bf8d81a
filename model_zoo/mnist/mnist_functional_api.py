"""MNIST with the functional API: a model with dataset_fn, loss and optimizer as functions.

Records: tf.Example with ``image`` (28×28 floats from 0 to 255) and ``label`` (int64).
"""

import tensorflow as tf

from elasticdl.python.common.constants import Mode

inputs = tf.keras.Input(shape=(28, 28), name="image")
x = tf.keras.layers.Reshape((28, 28, 1))(inputs)
x = tf.keras.layers.Conv2D(32, kernel_size=(3, 3), activation="relu")(x)
x = tf.keras.layers.Conv2D(64, kernel_size=(3, 3), activation="relu")(x)
# Keras's default of 0.99 needs hundreds of updates before evaluation sees trained statistics.
x = tf.keras.layers.BatchNormalization(momentum=0.9)(x)
x = tf.keras.layers.MaxPooling2D(pool_size=(2, 2))(x)
x = tf.keras.layers.Dropout(0.25)(x)
x = tf.keras.layers.Flatten()(x)
outputs = tf.keras.layers.Dense(10)(x)

model = tf.keras.Model(inputs=inputs, outputs=outputs, name="mnist_model")


def dataset_fn(dataset, mode):
    description = {"image": tf.io.FixedLenFeature([28, 28], tf.float32)}
    if mode != Mode.PREDICTION:
        description["label"] = tf.io.FixedLenFeature([1], tf.int64)

    def parse(record):
        example = tf.io.parse_single_example(record, description)
        features = {"image": example["image"] / 255.0}
        if mode == Mode.PREDICTION:
            return features
        return features, tf.cast(example["label"], tf.int32)

    dataset = dataset.map(parse)
    if mode == Mode.TRAINING:
        dataset = dataset.shuffle(buffer_size=1024)
    return dataset


def loss(labels, predictions):
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=tf.reshape(labels, [-1]), logits=predictions
        )
    )


def optimizer(lr=0.001):
    return tf.keras.optimizers.Adam(lr)


def eval_metrics_fn():
    return {
        "accuracy": lambda labels, predictions: tf.equal(
            tf.argmax(predictions, 1, output_type=tf.int32), tf.reshape(labels, [-1])
        )
    }
