"""MNIST as an ElasticDLSpec: all definitions in one class.

Records: tf.Example with ``image`` (28×28 floats from 0 to 255) and ``label`` (int64).
"""

import tensorflow as tf

from elasticdl import ElasticDLSpec
from elasticdl.python.common.constants import Mode


class MnistSpec(ElasticDLSpec):
    """The parameters of the constructor come from ``--params``."""

    def __init__(self, context=None, dropout=0.25):
        super().__init__(context=context)
        self._dropout = dropout

    def create_model(self):
        inputs = tf.keras.Input(shape=(28, 28), name="image")
        x = tf.keras.layers.Reshape((28, 28, 1))(inputs)
        x = tf.keras.layers.Conv2D(32, kernel_size=(3, 3), activation="relu")(x)
        x = tf.keras.layers.Conv2D(64, kernel_size=(3, 3), activation="relu")(x)
        x = tf.keras.layers.BatchNormalization(momentum=0.9)(x)
        x = tf.keras.layers.MaxPooling2D(pool_size=(2, 2))(x)
        x = tf.keras.layers.Dropout(self._dropout)(x)
        x = tf.keras.layers.Flatten()(x)
        outputs = tf.keras.layers.Dense(10)(x)
        return tf.keras.Model(inputs=inputs, outputs=outputs, name="mnist_model")

    def create_optimizer(self, lr=0.001):
        return tf.keras.optimizers.Adam(lr)

    def create_loss(self, outputs=None, labels=None):
        return tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=tf.reshape(labels, [-1]), logits=outputs
            )
        )

    def create_metrics(self, mode=Mode.TRAINING, outputs=None, labels=None):
        if mode != Mode.EVALUATION:
            return {}
        found = tf.argmax(outputs, 1, output_type=tf.int32)
        return {"accuracy": tf.equal(found, tf.reshape(labels, [-1]))}

    def create_dataset(self, dataset, mode):
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
        return dataset.shuffle(buffer_size=1024) if mode == Mode.TRAINING else dataset
