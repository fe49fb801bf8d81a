"""Small records made for tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf


def feature(value: Any) -> tf.train.Feature:
    if isinstance(value, bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
    array = np.asarray(value).reshape(-1)
    if array.dtype.kind in "iu":
        return tf.train.Feature(int64_list=tf.train.Int64List(value=array.tolist()))
    return tf.train.Feature(float_list=tf.train.FloatList(value=array.tolist()))


def example(**values: Any) -> bytes:
    features = {name: feature(value) for name, value in values.items()}
    message = tf.train.Example(features=tf.train.Features(feature=features))
    content: bytes = message.SerializeToString()
    return content


def pictures(count: int, shape: tuple[int, ...]) -> Iterator[tuple[np.ndarray, int]]:
    """Images of 0 to 255 with a bright stripe; its position is the class."""
    rng = np.random.default_rng(1)
    for index in range(count):
        label = index % 10
        image = rng.integers(0, 60, shape)
        image[2 * label : 2 * label + 4] += 150
        yield image, label


def float_images(count: int, shape: tuple[int, ...] = (28, 28)) -> list[bytes]:
    """Images as numbers, as ``tf.io.FixedLenFeature([28, 28], tf.float32)`` reads them."""
    return [
        example(image=image.astype(np.float32), label=np.array([label], np.int64))
        for image, label in pictures(count, shape)
    ]


def byte_images(count: int, shape: tuple[int, ...] = (28, 28)) -> list[bytes]:
    """Return such examples with bytes, which an ``input_fn`` reads with ``np.frombuffer``."""
    return [
        example(image=image.astype(np.uint8).tobytes(), label=np.array([label], np.int64))
        for image, label in pictures(count, shape)
    ]
