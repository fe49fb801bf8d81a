"""Will a customer leave? Numbers and strings, some missing.

First, once: python mixed_csv.py TABLE
"""

import csv
import json
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

NUMBERS = ["age", "income", "visits"]
STRINGS = ["city", "plan"]
STATE = Path(__file__).with_name("mixed_csv.json")


def adapt(table):
    with open(table, newline="") as file:
        rows = list(csv.DictReader(file))
    state = {}
    for name in NUMBERS:
        layer = keras.layers.Normalization(axis=None)
        layer.adapt(np.array([float(row[name]) for row in rows if row[name]]))
        state[name] = {"mean": layer.mean.numpy().item(), "variance": layer.variance.numpy().item()}
    for name in STRINGS:
        layer = keras.layers.StringLookup()
        layer.adapt([row[name] for row in rows])
        state[name] = layer.get_vocabulary(include_special_tokens=False)
    STATE.write_text(json.dumps(state))


if __name__ == "__main__":
    adapt(sys.argv[1])

state = json.loads(STATE.read_text())


def build_model():
    inputs, features = [], []
    for name in NUMBERS:
        number = keras.Input((1,), name=name)
        inputs.append(number)
        features.append(keras.layers.Normalization(axis=None, **state[name])(number))
    for name in STRINGS:
        string = keras.Input((1,), dtype="string", name=name)
        inputs.append(string)
        lookup = keras.layers.StringLookup(vocabulary=state[name], output_mode="one_hot")
        features.append(lookup(string))
    x = keras.layers.concatenate(features)
    x = keras.layers.Dense(32, activation="relu")(x)
    x = keras.layers.Dropout(0.3)(x)
    return keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(x))


def dataset_fn(dataset, mode):
    def parse(row):
        age, income, city, plan, visits, left = tf.io.decode_csv(
            row, [[np.nan], [np.nan], [""], [""], [np.nan], [0.0]]
        )
        features = {"age": age, "income": income, "visits": visits}
        for name, value in features.items():
            features[name] = tf.where(tf.math.is_nan(value), state[name]["mean"], value)
        features |= {"city": city, "plan": plan}
        return {name: value[tf.newaxis] for name, value in features.items()}, left[tf.newaxis]

    return dataset.map(parse)


loss = keras.losses.BinaryCrossentropy()
metrics = ["accuracy"]


def optimizer():
    return keras.optimizers.Adam()
