"""Model files with different input functions, and their minibatches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from example_data import example
from zoo_folder import ZooFolder

from edl_worker.core.batch import Batch
from edl_worker.engines.tensorflow.model import ModelFile

HEAD = """
import random
inputs = tf.keras.Input((1,), name="x")
model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(inputs))

def loss(labels, predictions):
    return tf.reduce_mean(predictions)

def optimizer():
    return tf.keras.optimizers.SGD(0.1)
"""
PARSE = """
def parse(record):
    x = tf.io.parse_single_example(record, {"x": tf.io.FixedLenFeature([1], tf.int64)})["x"]
    return {"x": x}, x
"""
PLAIN = (
    PARSE
    + """
def dataset_fn(dataset, mode):
    return dataset.map(parse)
"""
)
IN_BATCHES = """
def parse(records):
    x = tf.io.parse_example(records, {"x": tf.io.FixedLenFeature([1], tf.int64)})["x"]
    return {"x": x}, x
def dataset_fn(dataset, mode):
    return dataset.batch(SIZE).map(parse)
"""
SHUFFLED = (
    PARSE
    + """
def dataset_fn(dataset, mode):
    dataset = dataset.map(parse)
    return dataset if mode == Mode.PREDICTION else dataset.shuffle(64)
"""
)
RANDOM_OPS = (
    PARSE
    + """
def noise(features, x):
    return {"x": tf.cast(x, tf.float32) + tf.random.uniform([1])}, x
def dataset_fn(dataset, mode):
    return dataset.map(parse).map(noise).shuffle(16)
"""
)
RANDOM_OPS_ALONE = RANDOM_OPS.replace(".shuffle(16)", "")
NUMPY_AT_BUILD = (
    PARSE
    + """
def dataset_fn(dataset, mode):
    shift = np.random.randint(1000) + random.randint(0, 1000)
    return dataset.map(parse).map(lambda f, x: ({"x": f["x"] + shift}, x))
"""
)
RECORDS = """
def input_fn(records):
    x = np.array([[r["x"]] for r in records])
    return {"x": x}, x
"""
RANDOM_RECORDS = """
def input_fn(records):
    x = np.array([[r["x"]] for r in records])
    return {"x": x + np.random.random(x.shape) + random.random()}, x
"""
RANDOMNESS = {
    "shuffle": SHUFFLED,
    "random ops": RANDOM_OPS,
    "random ops alone": RANDOM_OPS_ALONE,
    "numpy at build": NUMPY_AT_BUILD,
    "input_fn": RANDOM_RECORDS,
}


def load(zoo: ZooFolder, source: str, **options: Any) -> ModelFile:
    zoo.write("mine.py", HEAD + source)
    return zoo.load("mine", **options)


def rows(start: int, stop: int) -> list[bytes]:
    return [example(x=np.array([number])) for number in range(start, stop)]


def values(found: list[Batch]) -> list[list[float]]:
    return [np.asarray(batch.features["x"]).reshape(-1).tolist() for batch in found]


def numbers(found: list[Batch]) -> list[list[int]]:
    return [np.asarray(batch.labels).reshape(-1).tolist() for batch in found]


def join(minibatches: list[list[Any]]) -> list[Any]:
    return [number for minibatch in minibatches for number in minibatch]


def failing(error: Exception, after: int = 20) -> Callable[[], Iterator[list[bytes]]]:
    def blocks() -> Iterator[list[bytes]]:
        yield rows(0, after)
        raise error

    return blocks
