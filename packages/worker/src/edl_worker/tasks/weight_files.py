"""Values of variables in files: name -> value, as safetensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.core import variable_names
from edl_worker.engines.tensorflow.embedding.layer import IDS, ROWS, SEED, Embedding
from edl_worker.engines.tensorflow.internals import nested_layers

_TABLES = (IDS, ROWS, SEED)
_ORDER = "order"
"""Metadata: the names in the order of the model, which the format itself does not keep."""


@dataclass(frozen=True, slots=True)
class NamedValues:
    """Values by name, in the order of the model that they were saved from."""

    arrays: Mapping[str, npt.NDArray[Any]]
    source: str


def of_model(model: keras.Model) -> dict[str, npt.NDArray[Any]]:
    """All numeric weights of a model, by unique name, in order; copies."""
    return {
        name: np.array(variable.numpy())
        for name, variable in _named(model).items()
        if "string" not in str(variable.dtype)
    }


def save(values: Mapping[str, npt.NDArray[Any]], path: Path) -> None:
    """Write a safetensors file."""
    packed = {name: np.array(value, order="C", copy=None) for name, value in values.items()}
    save_file(packed, path, metadata={_ORDER: json.dumps(list(values))})


def read(path: Path) -> NamedValues:
    """Read a safetensors file, whole.

    Raises:
        EdlError: it is missing or damaged.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            order = json.loads((file.metadata() or {}).get(_ORDER, "null")) or list(file.keys())
            if not isinstance(order, list) or not all(isinstance(name, str) for name in order):
                raise ValueError(f"its {_ORDER} is no list of names")
            return NamedValues({name: file.get_tensor(name) for name in order}, str(path))
    except FileNotFoundError:
        raise EdlError(
            ErrorCode.MODEL_NOT_FOUND,
            f"there is no file {path.name} in {path.parent}",
            where=str(path),
            remedy="Name a directory that edl train wrote as its --output.",
        ) from None
    except (SafetensorError, ValueError, OSError, RecursionError) as error:
        raise EdlError(
            ErrorCode.CHECKPOINT_DAMAGED,
            f"{path.name} cannot be read: {error}",
            where=str(path),
            remedy="Copy the trained model again, or train it again.",
        ) from None


def assign(model: keras.Model, values: NamedValues) -> None:
    """Give the weights of a model the values of a file.

    Raises:
        EdlError: SHAPE_MISMATCH, the file is of another model; it names the variables.
    """
    values = _take_rows(model, values)
    wanted = {
        name: variable
        for name, variable in _named(model).items()
        if "string" not in str(variable.dtype) and _kind(name) not in _TABLES
    }
    pairs = variable_names.match(list(wanted), list(values.arrays))
    if pairs is None:
        missing = [name for name in wanted if name not in values.arrays]
        surplus = [name for name in values.arrays if name not in wanted]
        raise _other_model(
            values.source,
            f"the model's variables {_some(missing)} are not in it"
            + (f"; it has {_some(surplus)} instead" if surplus else ""),
        )
    for name, variable in wanted.items():
        value = values.arrays[pairs[name]]
        if tuple(value.shape) != tuple(variable.shape):
            raise _other_model(
                values.source,
                f"variable {name} has shape {tuple(variable.shape)} in the model "
                f"and {tuple(value.shape)} in the file",
            )
    for name, variable in wanted.items():
        variable.assign(values.arrays[pairs[name]])


def _take_rows(model: keras.Model, values: NamedValues) -> NamedValues:
    """Give embedding layers the rows of a file; what is left of it are the other values.

    Rows are as many as training has made, so they fit no shape. Layers and rows belong together
    in their order, as names may have shifted.
    """
    layers = [layer for layer in nested_layers(model) if isinstance(layer, Embedding)]
    ids = [name for name in values.arrays if _kind(name) == IDS]
    if not layers or not ids:
        return values
    if len(layers) != len(ids):
        raise _other_model(
            values.source,
            f"the model has {len(layers)} embedding tables, and the file {len(ids)}",
        )
    for layer, name in zip(layers, ids, strict=True):
        rows = values.arrays.get(name.replace(IDS, ROWS))
        seed = values.arrays.get(name.replace(IDS, SEED))
        if rows is None or seed is None or rows.shape[1:] != (layer.output_dim,):
            raise _other_model(
                values.source, f"its table {layer.name} has no rows of {layer.output_dim} numbers"
            )
        layer.load_rows(values.arrays[name], rows, int(seed))
    rest = {n: a for n, a in values.arrays.items() if _kind(n) not in _TABLES}
    return NamedValues(rest, values.source)


def _kind(name: str) -> str:
    return name.rpartition("/")[2].partition("#")[0]


def _named(model: keras.Model) -> dict[str, keras.Variable]:
    variables = model.weights
    unique = variable_names.unique([variable.path for variable in variables])
    return dict(zip(unique, variables, strict=True))


def _some(found: list[str]) -> str:
    text = ", ".join(found[:4])
    return f"{text} and {len(found) - 4} more" if len(found) > 4 else text


def _other_model(source: str, what: str) -> EdlError:
    return EdlError(
        ErrorCode.SHAPE_MISMATCH,
        f"the values are of another model: {what}",
        where=source,
        remedy="Use the model definition and --params that the values were trained with.",
    )
