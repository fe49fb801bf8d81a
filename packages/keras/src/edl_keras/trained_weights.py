"""Gives the weights that a job has trained to the model of this process."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import keras
from safetensors import safe_open

from edl_keras.errors import wrong_model

_KERAS, _VALUES, _ORDER = "model.keras", "parameters.safetensors", "order"


def load_weights(model: keras.Model, output: Path) -> None:
    """Give a model the weights of a trained model of the same layers.

    If the job could write Keras's own file, the optimizer gets its state, too.

    Raises:
        Problem: they do not fit.
    """
    try:
        if (output / _KERAS).exists():
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
        variables = [each for each in model.weights if "string" not in str(each.dtype)]
        found = [values.get_tensor(name) for name in names]
    if [tuple(each.shape) for each in variables] != [each.shape for each in found]:
        raise ValueError(f"its variables are {', '.join(names)}")
    for variable, value in zip(variables, found, strict=True):
        variable.assign(value)
