"""Callers of callbacks, as those of new workers."""

from __future__ import annotations

import tensorflow as tf
from zoo_folder import ZooFolder

from edl_worker.core.batch import Batch
from edl_worker.engines.tensorflow.epoch_callbacks import CallbackCaller
from edl_worker.engines.tensorflow.training.arena import Arena

BATCH = Batch({"x": tf.zeros((16, 2))}, tf.zeros((16, 1)), 16)


def caller(zoo: ZooFolder, text: str) -> CallbackCaller:
    """Return the caller of a new worker."""
    zoo.write("mine.py", text)
    file = zoo.load("mine")
    file.build(BATCH)
    file.resolve_callbacks(validates=True)
    return CallbackCaller(file, Arena(file.model), 10)
