"""The input function that both models share."""

import tensorflow as tf


def credit_data_processor(dataset, mode):
    features = {
        "income": tf.io.FixedLenFeature([], tf.float32),
        "debt": tf.io.FixedLenFeature([], tf.float32),
        "score": tf.io.FixedLenFeature([1], tf.float32),
    }

    def parse(record):
        values = tf.io.parse_single_example(record, features)
        return tf.stack([values["income"], values["debt"]]), values["score"]

    return dataset.map(parse)
