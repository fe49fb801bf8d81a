"""A model of another file of the same folder."""

import keras

model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, activation="sigmoid")])
