"""The values that the modules of a model zoo keep for themselves, outside of the model.

Each process has its own. A callback may change such a value for the loss or for ``dataset_fn``, as
it may in ``fit``, but only the worker that makes the call gets the new one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from edl_worker.model_file.zoo.module_loaders import ZooModuleLoader

_SCALARS = (bool, int, float, str)
_MAX_SIZE = 10_000
"""Variables with more numbers are hardly set by a callback."""


def read_values() -> dict[str, Any]:
    """Return the numbers, texts and variables of all modules, by name and file."""
    return {
        f"{name} of {PurePath(loader.path).name}": value
        for module in list(sys.modules.values())
        if isinstance(loader := getattr(module, "__loader__", None), ZooModuleLoader)
        for name, value in _values_of(vars(module))
    }


def find_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the names of values that are no longer what they were."""
    return [
        name
        for name, value in after.items()
        if name in before and not np.array_equal(before[name], value)
    ]


def _values_of(variables: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in list(variables.items()):
        if name.startswith("__"):
            continue
        if isinstance(value, keras.Variable | tf.Variable):
            if np.prod(value.shape) <= _MAX_SIZE:
                yield name, value.numpy()
        elif isinstance(value, _SCALARS):
            yield name, value
        elif isinstance(value, dict):
            scalars = ((key, one) for key, one in value.items() if isinstance(one, _SCALARS))
            yield from ((f"{name}[{key!r}]", one) for key, one in scalars)
