"""A model, an optimizer, its schedule and a metric of tf_keras: a line over the age."""

import tensorflow as tf
import tf_keras


def custom_model():
    inputs = tf_keras.Input((1,), name="age")
    hidden = tf_keras.layers.Dense(8, activation="tanh", kernel_regularizer="l2")(inputs)
    outputs = tf_keras.layers.Dense(1)(tf_keras.layers.Dropout(0.1)(hidden))
    return tf_keras.Model(inputs, outputs, name="keras2")


def feed(dataset, mode, metadata):
    age = metadata.column_names.index("age")

    def parse(record):
        scaled = (tf.strings.to_number(record[age : age + 1], tf.float32) - 45.0) / 20.0
        return scaled, 3.0 - scaled

    return dataset.map(parse)


def loss(labels, predictions):
    return tf.reduce_mean(tf.square(predictions - labels))


def optimizer(lr=0.02):
    schedule = tf_keras.optimizers.schedules.ExponentialDecay(lr, 100, 0.9)
    return tf_keras.optimizers.SGD(schedule, momentum=0.9)


def eval_metrics_fn():
    return {"mae": tf_keras.metrics.MeanAbsoluteError()}
