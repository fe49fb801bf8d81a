"""The callbacks of a job that gets more epochs than it had, and of one that changes its module."""

from __future__ import annotations

import pytest
import tensorflow as tf
from zoo_folder import ZooFolder

from edl_worker.core.batch import Batch
from edl_worker.core.tasks import EpochLogs
from edl_worker.engines.tensorflow.epoch_callbacks import CallbackCaller
from edl_worker.engines.tensorflow.training.arena import Arena

MODEL = """
model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
loss = "mse"
optimizer = tf.keras.optimizers.SGD(0.1)

def dataset_fn(dataset, mode):
    return dataset

class Begun(tf.keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.model.optimizer.learning_rate = 2.0 * epoch
    def on_epoch_end(self, epoch, logs=None):
        raise ValueError("has ended before")
    def on_train_end(self, logs=None):
        raise ValueError("has not ended")

callbacks = [Begun()]
"""


CHANGES = """
import keras

beta, step, shown, sizes = keras.Variable(1.0), 0, [], {"batch": 1, "rows": []}

class Anneals(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        global step
        beta.assign(1.0 + epoch)
        step, sizes["batch"] = epoch, 2 ** epoch
        shown.append(epoch)
        sizes["rows"].append(epoch)

callbacks = [Anneals()]
"""


def caller(zoo: ZooFolder, more: str = "") -> CallbackCaller:
    """Return the caller of a new worker."""
    zoo.write("mine.py", MODEL + more)
    file = zoo.load("mine")
    file.build(Batch({"x": tf.zeros((4, 2))}, tf.zeros((4, 1)), 4))
    return CallbackCaller(file, Arena(file.model), 3)


def test_the_first_of_more_epochs_only_begins(zoo: ZooFolder) -> None:
    first = caller(zoo).call(0, EpochLogs(b"", {}, None))
    again = caller(zoo).call(1, EpochLogs(first.state, {}, None, epoch_begin=True))
    assert again.learning_rate == pytest.approx(2.0)
    assert not again.stopped_by


def test_what_a_callback_changes_for_its_own_worker_alone_is_named(zoo: ZooFolder) -> None:
    calls = caller(zoo, CHANGES)
    first = calls.call(0, EpochLogs(b"", {}, None))
    assert first.warnings == ()
    warnings = calls.call(1, EpochLogs(first.state, {}, None)).warnings
    assert [text.partition(". Only the worker")[0] for text in warnings] == [
        f"A callback changes {name} of mine.py" for name in ("beta", "step", "sizes['batch']")
    ]
