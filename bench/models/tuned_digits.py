"""A convolutional network for digits whose learning rate is searched, as for KerasTuner.

Every trial costs the same, so that the time of a search does not depend on what it tries.
"""

import digits_dense
import keras

dataset_fn = digits_dense.dataset_fn


def build_model(hp):
    image = keras.Input((28, 28), name="image")
    x = keras.layers.Reshape((28, 28, 1))(image)
    x = keras.layers.Conv2D(32, 3, activation="relu")(x)
    x = keras.layers.Conv2D(64, 3, activation="relu")(x)
    x = keras.layers.MaxPooling2D()(x)
    outputs = keras.layers.Dense(10)(keras.layers.Flatten()(x))
    model = keras.Model(image, outputs)
    model.compile(
        keras.optimizers.Adam(hp.Float("learning_rate", 1e-4, 1e-2, sampling="log")),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model
