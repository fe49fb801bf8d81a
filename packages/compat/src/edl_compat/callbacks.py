"""The callbacks of ElasticDL: ``from elasticdl.python.elasticdl.callbacks import ...``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras


class LearningRateScheduler(keras.callbacks.Callback):
    """Sets the learning rate by the version of the model: ``schedule(version)``.

    A version is the number of updates that the model has had. The master applies the updates, so
    the schedule is not called during training; the worker makes a table of it when it
    loads the model file.
    """

    def __init__(self, schedule: Callable[[int], Any]) -> None:
        super().__init__()
        self.schedule = schedule


class MaxStepsStopping(keras.callbacks.Callback):
    """Asks to stop training after so many minibatches."""

    def __init__(self, max_steps: int) -> None:
        super().__init__()
        self.max_steps = max_steps


class SavedModelExporter(keras.callbacks.Callback):
    """Asks for a SavedModel at the end, which edl writes anyway."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
