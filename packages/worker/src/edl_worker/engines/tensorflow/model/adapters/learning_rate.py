"""Learning rates by the version of the model: ``callbacks`` and ``learning_rate_scheduler``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from edl_worker.engines.tensorflow.model.adapters.callbacks import Callbacks
from edl_worker.model_file.arguments import Definition
from edl_worker.model_file.definition_caller import DefinitionCaller
from edl_worker.model_file.zoo import compatibility

_KERAS_SCHEDULE = (
    "Give the optimizer a Keras schedule: "
    "SGD(tf.keras.optimizers.schedules.ExponentialDecay(0.1, 1000, 0.9))."
)


def rate_of_callbacks(
    definition: Definition, caller: DefinitionCaller, callbacks: Callbacks
) -> Any:
    """Return the learning rate that callbacks of ElasticDL ask for; None without such a callback.

    Raises:
        EdlError: MODEL_CONTRACT.
    """
    del caller
    old = [each for each in callbacks if _is_of_elasticdl(each)]
    if any(type(each).__name__ == "MaxStepsStopping" for each in old):
        raise definition.error(
            "has a MaxStepsStopping", "Leave it out; --num-epochs says how long to train."
        )
    schedules = [each.schedule for each in old if hasattr(each, "schedule")]
    if len(schedules) > 1:
        raise definition.error(f"has {len(schedules)} learning rate schedulers", "Keep one.")
    return _table(definition, schedules[0]) if schedules else None


def without_schedulers(callbacks: Callbacks) -> Callbacks:
    """Return the callbacks to call, without those of ElasticDL, which have no hook."""
    return tuple(each for each in callbacks if not _is_of_elasticdl(each))


def _is_of_elasticdl(callback: keras.callbacks.Callback) -> bool:
    shelf = compatibility.shelf()
    return shelf is not None and shelf.is_old_callback(callback)


def adapt_version_schedule(definition: Definition, caller: DefinitionCaller) -> Any:
    """Return the learning rate of a function ``learning_rate_scheduler(model_version)``.

    Raises:
        EdlError: MODEL_CONTRACT.
    """
    return _table(definition, caller.function(definition))


def _table(definition: Definition, schedule: Callable[[int], Any]) -> Any:
    shelf = compatibility.shelf()
    if shelf is None:
        raise definition.error(
            "is of ElasticDL, which needs the package edl-compat", _KERAS_SCHEDULE
        )
    try:
        return shelf.version_schedule(schedule)
    except Exception as error:  # also what the schedule itself raises
        raise definition.error(
            f"has a schedule that edl cannot use: it {error}", _KERAS_SCHEDULE
        ) from error
