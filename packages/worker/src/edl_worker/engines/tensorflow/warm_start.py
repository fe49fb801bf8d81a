"""Gives a new model the values of ``--init-from`` that fit it, and names the others."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.engines.tensorflow import weights
from edl_worker.engines.tensorflow.embedding.layer import ROWS
from edl_worker.engines.tensorflow.weights import Fit
from edl_worker.trained_model import directory, weight_files
from edl_worker.trained_model.weight_files import NamedValues

_MAX_NAMES = 20
"""So many variables are named in a warning; the others are counted."""


def initialize(model: keras.Model, init_from: str) -> tuple[str, ...]:
    """Give the variables of a model the values of ``--init-from``, by name and shape.

    Args:
        init_from: a trained model's directory, a ``.safetensors`` or a ``.keras`` file; a URI.

    Returns:
        Warnings that name the variables that keep their own initial values, and the values that
        are not used; empty if all values fit.

    Raises:
        EdlError: the file is missing or damaged, or nothing in it fits the model.
    """
    with ExitStack() as copied:
        fit = _assign_file(model, directory.local_copy(init_from, copied), init_from)
    texts = []
    if fit.fresh:
        texts.append(
            f"{len(fit.taken)} of {len(fit.taken) + len(fit.fresh)} variables begin with values of"
            f" --init-from {init_from}, these with new ones: {_join(fit.fresh)}."
        )
    if fit.unused:
        texts.append(f"Not used of --init-from {init_from}: {_join(fit.unused)}.")
    return tuple(texts)


def _join(names: Sequence[str]) -> str:
    left = len(names) - _MAX_NAMES
    return "; ".join(names[:_MAX_NAMES]) + (f" and {left} more" if left > 0 else "")


def _assign_file(model: keras.Model, path: Path, init_from: str) -> Fit:
    is_folder = path.is_dir()  # whose name may end like that of a file
    if path.suffix in (".keras", ".h5") and not is_folder:
        return _load_keras(model, path, init_from)
    if path.suffix == ".safetensors" and not is_folder:
        return _assign(model, weight_files.read(path))
    if _has_only_keras(path):
        return _load_keras(model, path / directory.KERAS, init_from)
    return _assign(model, directory.open_directory(str(path)).read_values())


def _has_only_keras(path: Path) -> bool:
    """Return whether a folder has a model of Keras, and is not what edl wrote."""
    has_description = (path / directory.DESCRIPTION).exists()
    return path.is_dir() and not has_description and (path / directory.KERAS).exists()


def _assign(model: keras.Model, values: NamedValues) -> Fit:
    """Assign all values of the same model, or else those that fit by name and shape."""
    try:
        weights.assign(model, values)
    except EdlError as other_model:
        fit = weights.assign_matching(model, values)
        if not fit.taken:
            raise other_model from None
        return fit
    return Fit(tuple(values.arrays))


def _load_keras(model: keras.Model, path: Path, named: str) -> Fit:
    if not path.exists():
        raise EdlError(
            ErrorCode.MODEL_NOT_FOUND,
            f"there is no file {named}",
            where=named,
            remedy="Name a trained model's directory, or a .keras or .safetensors file.",
        )
    before = [np.array(variable.numpy()) for variable in model.weights]
    try:
        model.load_weights(path)
    except Exception as error:  # Keras raises what it likes
        fit = _load_matching(model, path, before)
        if not fit.taken:
            first = str(error).strip().splitlines()
            raise EdlError(
                ErrorCode.SHAPE_MISMATCH,
                f"the values of {path.name} do not fit the model: {first[0] if first else error!r}",
                where=named,
                remedy="Use the model definition and --params that the values were trained with.",
            ) from error
        return fit
    return Fit(tuple(variable.path for variable in model.weights))


def _load_matching(model: keras.Model, path: Path, before: Sequence[npt.NDArray[Any]]) -> Fit:
    """Load those values of a Keras file that fit. Keras does not say which these are.

    So each variable of floats is NaN meanwhile, which only a value of the file replaces.

    Args:
        before: the initial values of ``model.weights``.
    """
    floats = [
        (variable, value)
        for variable, value in zip(model.weights, before, strict=True)
        if "float" in str(variable.dtype) and value.size
    ]
    for variable, value in floats:
        variable.assign(np.full_like(value, math.nan))
    with suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.load_weights(path, skip_mismatch=True)
    taken, fresh = [], []
    for variable, value in floats:
        if np.isnan(np.asarray(variable.numpy(), np.float64)).all():
            variable.assign(value)
            fresh.append(variable.path)
        else:
            taken.append(variable.path)
    tables = weights.embedding_layers(model)
    fresh += [f"{layer.path}/{ROWS}" for layer in tables if layer.initial_table is None]
    return Fit(tuple(taken), tuple(fresh))
