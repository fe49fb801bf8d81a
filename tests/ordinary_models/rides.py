"""How long does a ride take, and is there a tip? Two inputs, two outputs, weights and callbacks.

Tips are known of rides that were paid by card: the weight of the others is 0.
"""

import keras
import tensorflow as tf
from keras import layers


def build_model():
    route = keras.Input((3,), name="route")
    zone = keras.Input((), dtype="int64", name="zone")
    place = layers.Embedding(20, 4)(zone)
    x = layers.concatenate([layers.BatchNormalization()(route), place])
    x = layers.Dense(32, activation="relu")(x)
    minutes = layers.Dense(1, name="minutes")(layers.Dense(16, activation="relu")(x))
    tip = layers.Dense(1, activation="sigmoid", name="tip")(layers.Dense(16, activation="relu")(x))
    return keras.Model([route, zone], {"minutes": minutes, "tip": tip})


def dataset_fn(dataset, mode):
    numbers = ["distance", "hour", "rain", "minutes"]
    integers = ["zone", "tip", "card"]
    description = {name: tf.io.FixedLenFeature([], tf.float32) for name in numbers}
    description |= {name: tf.io.FixedLenFeature([], tf.int64) for name in integers}

    def parse(record):
        r = tf.io.parse_single_example(record, description)
        features = {"route": tf.stack([r["distance"], r["hour"], r["rain"]]), "zone": r["zone"]}
        labels = {"minutes": r["minutes"][tf.newaxis], "tip": r["tip"][tf.newaxis]}
        weights = {"minutes": 1.0, "tip": tf.cast(r["card"], tf.float32)}
        return features, labels, weights

    return dataset.map(parse)


loss = {"minutes": "huber", "tip": "binary_crossentropy"}
loss_weights = {"minutes": 0.2, "tip": 1.0}
metrics = {"minutes": ["mae"]}
weighted_metrics = {"tip": ["accuracy"]}


def optimizer():
    return keras.optimizers.Adam(0.01)


def callbacks():
    return [
        keras.callbacks.ReduceLROnPlateau(patience=2, factor=0.3),
        keras.callbacks.EarlyStopping(patience=4, restore_best_weights=True),
    ]
