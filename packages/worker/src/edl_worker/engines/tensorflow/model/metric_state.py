"""Finds state of the user's own metrics that is in attributes of Python and not in variables.

Keras traces ``update_state`` once, so that such an attribute has what one minibatch gave; and only
variables can be added up over the workers of a job.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from edl_worker.model_file.errors import place_of


def find_lost_state(
    metric: keras.metrics.Metric, labels: Any, outputs: Any
) -> tuple[str, str, str] | None:
    """Return what is wrong, what to do and where, if updates change attributes; or None.

    The metric has been updated once, so that an attribute which the first update sets is none.
    """
    own = [part for part in _parts(metric) if not type(part).__module__.startswith("keras.")]
    if not own:
        return None
    before = [_read(part) for part in own]
    metric.update_state(labels, outputs)
    for part, values in zip(own, before, strict=True):
        now = _read(part)
        names = [name for name, value in values.items() if name in now and now[name] != value]
        if names:
            name = names[0]
            kind = type(part)
            return (
                f"update_state of the metric {kind.__name__} changes self.{name}, which is no "
                "variable: the values of later minibatches and of other workers would be lost",
                f"Write self.{name} = self.add_variable(shape=(), initializer='zeros', "
                f"name='{name}') in __init__, and self.{name}.assign_add(x) in update_state.",
                place_of(kind.update_state, f"{kind.__name__}.update_state"),
            )
    return None


def _parts(metric: keras.metrics.Metric) -> list[keras.metrics.Metric]:
    return [metric, *getattr(metric, "metrics", ())]


def _read(metric: keras.metrics.Metric) -> dict[str, Any]:
    """Return what can be compared of the attributes that the user's own class has."""
    of_keras = vars(keras.metrics.Metric())
    return {
        name: shown
        for name, value in vars(metric).items()
        if name not in of_keras and (shown := _show(value)) is not None
    }


def _show(value: Any) -> Any:
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | dict | set):
        return len(value)
    if isinstance(value, np.ndarray | np.generic | tf.Tensor) and hasattr(value, "numpy"):
        return np.asarray(value).tobytes()
    return np.asarray(value).tobytes() if isinstance(value, np.ndarray | np.generic) else None
