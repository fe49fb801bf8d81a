"""A data reader of its own, and layers of elasticdl_preprocessing."""

import csv

import tensorflow as tf
from elasticdl_preprocessing.layers import ConcatenateWithOffset, SparseEmbedding, ToSparse
from elasticdl_preprocessing.layers.discretization import Discretization
from elasticdl_preprocessing.layers.hashing import Hashing
from elasticdl_preprocessing.layers.normalizer import Normalizer

from elasticdl.python.data.reader.data_reader import AbstractDataReader, Metadata


class Reader(AbstractDataReader):
    """Rows of a table of text, with a city that the file has under another number."""

    def __init__(self, data_origin, **kwargs):
        AbstractDataReader.__init__(self, **kwargs)
        self._origin = data_origin

    def read_records(self, task):
        with open(task.shard_name) as file:
            rows = list(csv.reader(file))[1:]
        for row in rows[task.start : task.end]:
            yield [row[0], "city-" + row[1], row[2]]

    def create_shards(self):
        return {self._origin: (0, 1)}

    @property
    def metadata(self):
        return Metadata(column_names=["age", "city", "label"])


def custom_data_reader(data_origin, records_per_task=None, **kwargs):
    return Reader(data_origin, **kwargs)


def custom_model():
    inputs = {
        "age": tf.keras.layers.Input(name="age", shape=(1,), dtype=tf.float32),
        "city": tf.keras.layers.Input(name="city", shape=(1,), dtype=tf.string),
    }
    age = Discretization(bins=[20.0, 40.0, 60.0])(ToSparse()(inputs["age"]))
    city = Hashing(num_bins=16)(ToSparse()(inputs["city"]))
    ids = ConcatenateWithOffset([0, 4])([age, city])
    wide = SparseEmbedding(input_dim=20, output_dim=1)(ids)
    number = Normalizer(subtractor=40.0, divisor=20.0)(inputs["age"])
    deep = tf.keras.layers.Dense(8, activation="tanh")(tf.concat([wide, number], 1))
    return tf.keras.Model(inputs, tf.keras.layers.Dense(1)(deep), name="readers")


def feed(dataset, mode, metadata):
    def parse(record):
        features = {
            "age": tf.strings.to_number(record[0:1], tf.float32),
            "city": record[1:2],
        }
        return features, tf.strings.to_number(record[2:3], tf.float32)

    return dataset.map(parse)


def loss(labels, predictions):
    return tf.reduce_mean(
        tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=predictions)
    )


def optimizer(lr=0.05):
    return tf.optimizers.Adam(lr)


def eval_metrics_fn():
    return {"accuracy": tf.keras.metrics.BinaryAccuracy(threshold=0.0)}
