"""A model, an optimizer and a metric of Keras 2, of which TensorFlow still contains a part."""

import importlib

import tensorflow as tf


def old(module):
    return importlib.import_module("tensorflow.python.keras." + module)


def custom_model():
    core = old("layers.core")
    inputs = old("engine.input_layer").Input((1,), name="age")
    hidden = core.Dense(8, activation="relu", kernel_regularizer="l2")(inputs)
    return old("models").Model(inputs, core.Dense(1)(core.Dropout(0.1)(hidden)), name="keras2")


def feed(dataset, mode, metadata):
    label = metadata.column_names.index("label")

    def parse(record):
        age = tf.strings.to_number(record[0:1], tf.float32) / 50.0
        return age, tf.strings.to_number(record[label : label + 1], tf.float32)

    return dataset.map(parse)


def loss(labels, predictions):
    return tf.reduce_mean(tf.square(predictions - labels))


def optimizer(lr=0.1):
    schedule = old("optimizer_v2.learning_rate_schedule").ExponentialDecay(lr, 10, 0.9)
    return old("optimizer_v2.gradient_descent").SGD(schedule, momentum=0.9)


def eval_metrics_fn():
    return {"mae": old("metrics").MeanAbsoluteError()}
