"""The values of a Keras model by name: reading them, and giving them those of a file."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.core import variable_names
from edl_worker.engines.tensorflow.embedding.layer import IDS, ROWS, SEED, Embedding
from edl_worker.engines.tensorflow.internals import nested_layers
from edl_worker.trained_model import directory, weight_files
from edl_worker.trained_model.weight_files import NamedValues

_TABLES = (IDS, ROWS, SEED)


def of_model(model: keras.Model) -> dict[str, npt.NDArray[Any]]:
    """Return all numeric weights of a model, by unique name, in order; copies."""
    return {
        name: np.array(variable.numpy())
        for name, variable in _variables_by_name(model).items()
        if "string" not in str(variable.dtype)
    }


def initialize(model: keras.Model, init_from: str) -> None:
    """Give a model the values of ``--init-from``.

    Args:
        init_from: a trained model's directory, a ``.safetensors`` or a ``.keras`` file; a URI.

    Raises:
        EdlError: the file is missing, damaged, or of another model.
    """
    with ExitStack() as copied:
        _assign_file(model, directory.local_copy(init_from, copied), init_from)


def _assign_file(model: keras.Model, path: Path, init_from: str) -> None:
    if path.suffix in (".keras", ".h5"):
        _load_keras(model, path, init_from)
    elif path.suffix == ".safetensors":
        assign(model, weight_files.read(path))
    elif _has_only_keras(path):
        _load_keras(model, path / directory.KERAS, init_from)
    else:
        assign(model, directory.open_directory(str(path)).read_values())


def _has_only_keras(path: Path) -> bool:
    """Return whether a folder has a model of Keras, and is not what edl wrote."""
    has_description = (path / directory.DESCRIPTION).exists()
    return path.is_dir() and not has_description and (path / directory.KERAS).exists()


def _load_keras(model: keras.Model, path: Path, named: str) -> None:
    if not path.exists():
        raise EdlError(
            ErrorCode.MODEL_NOT_FOUND,
            f"there is no file {named}",
            where=named,
            remedy="Name a trained model's directory, or a .keras or .safetensors file.",
        )
    try:
        model.load_weights(path)
    except Exception as error:  # Keras raises what it likes
        first = str(error).strip().splitlines()
        raise EdlError(
            ErrorCode.SHAPE_MISMATCH,
            f"the values of {path.name} do not fit the model: {first[0] if first else error!r}",
            where=named,
            remedy="Use the model definition and --params that the values were trained with.",
        ) from error


def assign(model: keras.Model, values: NamedValues) -> None:
    """Give the weights of a model the values of a file.

    Raises:
        EdlError: SHAPE_MISMATCH, the file is of another model; it names the variables.
    """
    values = _take_rows(model, values)
    wanted = {
        name: variable
        for name, variable in _variables_by_name(model).items()
        if "string" not in str(variable.dtype) and _kind(name) not in _TABLES
    }
    pairs = variable_names.match(list(wanted), list(values.arrays))
    if pairs is None:
        missing = [name for name in wanted if name not in values.arrays]
        surplus = [name for name in values.arrays if name not in wanted]
        raise _other_model(
            values.source,
            f"the model's variables {_list_some(missing)} are not in it"
            + (f"; it has {_list_some(surplus)} instead" if surplus else ""),
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
    for layer in nested_layers(model):
        if isinstance(layer, keras.layers.Normalization):
            layer.finalize_state()  # it computes with a copy of its variables


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


def _variables_by_name(model: keras.Model) -> dict[str, keras.Variable]:
    variables = model.weights
    unique = variable_names.unique([variable.path for variable in variables])
    return dict(zip(unique, variables, strict=True))


def _list_some(found: list[str]) -> str:
    text = ", ".join(found[:4])
    return f"{text} and {len(found) - 4} more" if len(found) > 4 else text


def _other_model(source: str, what: str) -> EdlError:
    return EdlError(
        ErrorCode.SHAPE_MISMATCH,
        f"the values are of another model: {what}",
        where=source,
        remedy="Use the model definition and --params that the values were trained with.",
    )
