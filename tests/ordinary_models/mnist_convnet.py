"""The "Simple MNIST convnet" of keras.io, as unmodified as possible.

Instead of `load_data` and `fit`, it has `dataset_fn`, which prepares one record in the same way.
"""

import keras
import tensorflow as tf
from keras import layers

# Model / data parameters
num_classes = 10
input_shape = (28, 28, 1)


def dataset_fn(dataset, mode):
    description = {
        "image": tf.io.FixedLenFeature([28, 28, 1], tf.float32),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }

    def prepare(record):
        r = tf.io.parse_single_example(record, description)
        x, y = r["image"], r["label"]
        # Scale images to the [0, 1] range
        x = tf.cast(x, "float32") / 255
        # convert class vectors to binary class matrices
        y = keras.utils.to_categorical(y, num_classes)
        return x, y

    return dataset.map(prepare)


"""
## Build the model
"""

model = keras.Sequential(
    [
        keras.Input(shape=input_shape),
        layers.Conv2D(32, kernel_size=(3, 3), activation="relu"),
        layers.MaxPooling2D(pool_size=(2, 2)),
        layers.Conv2D(64, kernel_size=(3, 3), activation="relu"),
        layers.MaxPooling2D(pool_size=(2, 2)),
        layers.Flatten(),
        layers.Dropout(0.5),
        layers.Dense(num_classes, activation="softmax"),
    ]
)

model.compile(loss="categorical_crossentropy", optimizer="adam", metrics=["accuracy"])
