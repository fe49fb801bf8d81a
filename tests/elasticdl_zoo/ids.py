"""Ids of an embedding table, operations on Keras tensors, and a processor of predictions."""

import os

import tensorflow as tf
import tensorflow.keras.backend as K
from tensorflow.keras.layers import Dense, Input, Subtract

from elasticdl.python.elasticdl.layers.embedding import Embedding
from elasticdl.python.worker.prediction_outputs_processor import BasePredictionOutputsProcessor


def custom_model(input_length=3, output_dim=4):
    inputs = Input(shape=(input_length,), name="ids")
    rows = Embedding(output_dim=output_dim, mask_zero=True, input_length=input_length)(inputs)
    total = K.sum(rows, axis=1)
    product = 0.5 * Subtract()([K.square(total), K.sum(K.square(rows), axis=1)])
    product = K.sum(product, axis=1)
    bias = Embedding(output_dim=1, mask_zero=True, input_length=input_length)(inputs)
    first = tf.reshape(K.sum(bias, axis=1), shape=(-1,))
    x = tf.concat([total, tf.expand_dims(product, axis=1)], 1)
    logits = tf.reshape(Dense(1)(x), (-1,)) + first
    probs = tf.reshape(tf.sigmoid(logits), shape=(-1, 1))
    return tf.keras.Model(inputs=inputs, outputs={"logits": logits, "probs": probs})


def loss(labels, predictions):
    labels = tf.cast(tf.reshape(labels, [-1]), tf.float32)
    return tf.reduce_mean(
        input_tensor=tf.nn.sigmoid_cross_entropy_with_logits(
            labels=labels, logits=predictions["logits"]
        )
    )


def optimizer(lr=0.5):
    return tf.optimizers.SGD(lr)


def feed(dataset, mode, _):
    def parse(record):
        kinds = {"ids": tf.io.FixedLenFeature([3], tf.int64)}
        if mode != "prediction":
            kinds["label"] = tf.io.FixedLenFeature([1], tf.int64)
        r = tf.io.parse_single_example(record, kinds)
        features = {"ids": r["ids"]}
        if "label" not in kinds:
            return features
        return features, tf.cast(r["label"], tf.int32)

    return dataset.map(parse)


def eval_metrics_fn():
    return {"probs": {"auc": tf.keras.metrics.AUC()}}


class PredictionOutputsProcessor(BasePredictionOutputsProcessor):
    def __init__(self):
        self.folder = os.environ["PROCESSED"]

    def process(self, predictions, worker_id):
        values = predictions["probs"].numpy().reshape(-1)
        with open(os.path.join(self.folder, f"worker-{worker_id}"), "a") as file:
            file.writelines(f"{value:.6f}\n" for value in values)
