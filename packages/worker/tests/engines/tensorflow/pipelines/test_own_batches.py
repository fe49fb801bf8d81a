"""A dataset that batches is told from one whose examples have dimensions of their own."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from edl_worker.engines.tensorflow.pipelines.own_batches import yields_batches

SEQUENCES = tf.data.Dataset.from_tensor_slices((tf.zeros((6, 5, 2)), tf.zeros((6, 5))))
POINTS = tf.data.Dataset.from_tensor_slices(({"a": tf.zeros((6, 2)), "b": tf.zeros(6)}, tf.ones(6)))


def parsed_in_python(dataset: Any) -> Any:
    return dataset.map(lambda x, y: tf.py_function(lambda: (1.0, 2.0), [], (tf.float32,) * 2))


@pytest.mark.parametrize(
    "dataset",
    [
        POINTS.batch(2),
        POINTS.batch(4, num_parallel_calls=2),
        POINTS.batch(2, drop_remainder=True).shuffle(3).prefetch(1),
        POINTS.batch(2).map(lambda x, y: (x["a"] * 2.0, tf.reshape(y, [-1, 1]))),
        POINTS.batch(2).unbatch().batch(3),
        POINTS.padded_batch(2),
        POINTS.ragged_batch(2),
        POINTS.batch(2).rebatch(3),
        POINTS.batch(2).window(2),
        POINTS.batch(2).concatenate(POINTS.batch(2)),
        parsed_in_python(POINTS).batch(2),
        SEQUENCES.bucket_by_sequence_length(lambda x, y: tf.shape(y)[0], [3], [2, 2]),
    ],
)
def test_minibatches(dataset: tf.data.Dataset) -> None:
    assert yields_batches(dataset)


@pytest.mark.parametrize(
    "dataset",
    [
        POINTS,
        SEQUENCES,
        SEQUENCES.shuffle(3).filter(lambda x, y: True).cache(),
        parsed_in_python(POINTS),
        POINTS.batch(2).map(lambda x, y: (x, y)).unbatch(),
        POINTS.batch(2).flat_map(lambda *one: tf.data.Dataset.from_tensor_slices(one)).shuffle(3),
        POINTS.batch(2).interleave(lambda *one: tf.data.Dataset.from_tensor_slices(one)),
        # One example of several records.
        POINTS.batch(2).map(lambda x, y: (x["a"], y[-1])),
        POINTS.batch(2, drop_remainder=True).map(lambda x, y: (x["a"], tf.reduce_sum(y))),
        POINTS.batch(1).map(lambda x, y: (x["a"][0], y[0])),
        POINTS.map(lambda x, y: y).window(3, shift=1).flat_map(lambda window: window.batch(3)),
    ],
)
def test_records(dataset: tf.data.Dataset) -> None:
    assert not yields_batches(dataset)
