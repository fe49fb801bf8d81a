"""Two models of one file, as a modeler has them; the documents only name the first."""

import keras


class MyKerasModel(keras.Model):
    def __init__(self, hidden_units=(10,)):
        super().__init__()
        self._hidden = [keras.layers.Dense(units, activation="relu") for units in hidden_units]
        self._score = keras.layers.Dense(1)

    def call(self, inputs):
        for layer in self._hidden:
            inputs = layer(inputs)
        return self._score(inputs)


class MyLinearModel(keras.Model):
    def __init__(self):
        super().__init__()
        self._score = keras.layers.Dense(1)

    def call(self, inputs):
        return self._score(inputs)


loss = keras.losses.MeanSquaredError()


def optimizer(learning_rate=0.1):
    return keras.optimizers.Adam(learning_rate)
