"""The weights of a model before a job and after it."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import keras
from safetensors import safe_open
from safetensors.numpy import save_file

from edl_keras.errors import wrong_model

_KERAS, _VALUES, _ORDER = "model.keras", "parameters.safetensors", "order"


_INITIAL, _INITIAL_VALUES = "initial.weights.h5", "initial.safetensors"


def save_weights(model: keras.Model, folder: Path) -> None:
    """Write the weights that a job begins with, without the state of the optimizer."""
    if not model.built:  # it has no call, and Keras saves none of these
        values = {each.path: keras.ops.convert_to_numpy(each) for each in _numeric(model)}
        metadata = {_ORDER: json.dumps(list(values))}
        save_file(values, folder / _INITIAL_VALUES, metadata=metadata)
        return
    optimizer, model.optimizer = model.optimizer, None
    try:
        model.save_weights(folder / _INITIAL)
    finally:
        model.optimizer = optimizer


def find_weights(folder: Path) -> Path:
    """Return the file that ``save_weights`` has written."""
    found = folder / _INITIAL
    return found if found.exists() else folder / _INITIAL_VALUES


def load_weights(model: keras.Model, output: Path) -> None:
    """Give a model the weights of a trained model of the same layers.

    If the job could write Keras's own file, the optimizer gets its state, too.

    Raises:
        Problem: they do not fit.
    """
    try:
        if model.built and (output / _KERAS).exists():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the optimizer may have other variables
                model.load_weights(output / _KERAS)
        else:
            _assign(model, output / _VALUES)
    except Exception as error:  # Keras raises what it likes
        raise wrong_model(
            f"the weights of the job do not fit the model: {error}",
            f"The trained model is in {output}.",
        ) from error


def _assign(model: keras.Model, file: Path) -> None:
    """Assign the values of a file in their order: names may differ in another process."""
    with safe_open(file, framework="numpy") as values:
        names = json.loads(values.metadata()[_ORDER])
        variables = _numeric(model)
        found = [values.get_tensor(name) for name in names]
    if [tuple(each.shape) for each in variables] != [each.shape for each in found]:
        raise ValueError(f"its variables are {', '.join(names)}")
    for variable, value in zip(variables, found, strict=True):
        variable.assign(value)


def _numeric(model: keras.Model) -> list[keras.Variable]:
    return [each for each in model.weights if "string" not in str(each.dtype)]
