"""Digits in folders of images, with augmentation. `edl data convert` makes records of them."""

import keras
import tensorflow as tf
from keras import layers


def build_model():
    augment = keras.Sequential(
        [
            layers.RandomTranslation(0.1, 0.1, fill_mode="constant"),
            layers.RandomRotation(0.03, fill_mode="constant"),
            layers.RandomZoom(0.1, fill_mode="constant"),
        ],
        name="augment",
    )
    image = keras.Input((8, 8, 1), name="image")
    x = augment(layers.Rescaling(1 / 255)(image))
    x = layers.Conv2D(16, 3, padding="same")(x)
    x = layers.BatchNormalization()(x)
    x = layers.Activation("relu")(x)
    x = layers.Conv2D(32, 3, padding="same", activation="relu")(x)
    x = layers.MaxPooling2D()(x)
    x = layers.Flatten()(x)
    x = layers.Dropout(0.25)(x)
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
