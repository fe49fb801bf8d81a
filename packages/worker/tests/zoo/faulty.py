"""Parts of model files that go wrong while they work, each in one way."""

import time

import tensorflow as tf
from points import dataset_fn as points_dataset
from points import loss as points_loss

_calls = 0
crossentropy = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def not_finite(labels, predictions):
    return points_loss(labels, predictions) * float("nan")


def raising(dataset, mode):
    """Fine with the first minibatch, which the model is tried on."""
    global _calls
    _calls += 1
    if _calls > 1:
        raise RuntimeError("the cat is on the keyboard")
    return points_dataset(dataset, mode)


def slipping(dataset, mode):
    """Fine with the first minibatch; another attempt fails like this one."""
    global _calls
    _calls += 1
    return {}["x"] if _calls > 1 else points_dataset(dataset, mode)


def reshape(dataset, mode):
    global _calls
    _calls += 1
    dataset = points_dataset(dataset, mode)
    if _calls > 1:
        dataset = dataset.map(lambda x, label: ({"x": x["x"][:3]}, label))
    return dataset


def exhausting(dataset, mode):
    """Fail as TensorFlow does for lack of memory, but for the first minibatch.

    TensorFlow itself tries to get the memory for ten seconds at a time.
    """
    global _calls
    _calls += 1
    if _calls > 1:
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")
    return points_dataset(dataset, mode)


def weighted_with_nan(dataset, mode):
    return points_dataset(dataset, mode).map(lambda x, label: (x, label, float("nan")))


def double(dataset, mode):
    """Return two predictions for each record."""
    return points_dataset(dataset, mode).flat_map(
        lambda x: tf.data.Dataset.from_tensors(x).repeat(2)
    )


def halve(dataset, mode):
    """Return a prediction for every other record."""
    return (
        points_dataset(dataset, mode)
        .enumerate()
        .filter(lambda i, x: i % 2 == 0)
        .map(lambda i, x: x)
    )


def count_pipelines(dataset, mode):
    """Count for ``endless`` how often a pipeline was made."""
    global _calls
    _calls += 1
    return points_dataset(dataset, mode)


def endless(labels, predictions):
    """Comes to an end while the model is tried on the first minibatch, and never again."""

    def wait():
        while _calls > 1:
            time.sleep(0.05)
        return 0.0

    waited = tf.py_function(wait, [], tf.float32)
    return points_loss(labels, predictions) + tf.stop_gradient(tf.reshape(waited, []))


class NoException(BaseException):
    """An error that the handlers of model files' errors do not expect, as one of edl itself."""


def raise_no_exception(dataset, mode):
    raise NoException
