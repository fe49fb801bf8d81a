"""Digits by a frozen MobileNetV2 with a new head. First, once: python transfer.py.

That writes weights of its own instead of a download: random ones, with statistics of images.
"""

from pathlib import Path

import keras
import tensorflow as tf
from keras import layers

SIZE = 32
WEIGHTS = Path(__file__).with_name("mobilenet.weights.h5")


def mobilenet(weights):
    return keras.applications.MobileNetV2(
        (SIZE, SIZE, 3), alpha=0.35, include_top=False, weights=weights
    )


if __name__ == "__main__":
    keras.utils.set_random_seed(0)
    whole = mobilenet(None)
    for layer in whole.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.momentum = 0.0
    whole(layers.Resizing(SIZE, SIZE)(keras.random.uniform((128, 8, 8, 3), -1, 1)), training=True)
    whole.save_weights(WEIGHTS)


def build_model():
    whole = mobilenet(WEIGHTS)
    base = keras.Model(whole.input, whole.get_layer("block_6_expand_relu").output)
    base.trainable = False
    image = keras.Input((8, 8, 1), name="image")
    x = layers.Resizing(SIZE, SIZE)(image)
    x = layers.Concatenate()([x, x, x])
    x = keras.applications.mobilenet_v2.preprocess_input(x)
    x = base(x, training=False)
    x = layers.Dropout(0.2)(layers.Flatten()(x))
    return keras.Model(image, layers.Dense(10)(x))


def dataset_fn(dataset, mode):
    description = {
        "image": tf.io.FixedLenFeature([8, 8, 1], tf.float32),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }

    def parse(record):
        values = tf.io.parse_single_example(record, description)
        return values["image"], values["label"]

    return dataset.map(parse)


loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = "adam"
metrics = ["accuracy"]
