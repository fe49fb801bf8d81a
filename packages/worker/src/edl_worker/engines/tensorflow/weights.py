"""The values of a Keras model by name: reading them, and giving them those of a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.core import variable_names
from edl_worker.engines.tensorflow.embedding.layer import IDS, ROWS, SEED, Embedding
from edl_worker.engines.tensorflow.internals import nested_layers
from edl_worker.trained_model.weight_files import NamedValues

_TABLES = (IDS, ROWS, SEED)


def of_model(model: keras.Model) -> dict[str, npt.NDArray[Any]]:
    """Return all numeric weights of a model, by unique name, in order; copies."""
    return {
        name: np.array(variable.numpy())
        for name, variable in _variables_by_name(model).items()
        if "string" not in str(variable.dtype)
    }


def assign(model: keras.Model, values: NamedValues) -> None:
    """Give the weights of a model the values of a file.

    Raises:
        EdlError: SHAPE_MISMATCH, the file is of another model; it names the variables. The
            weights are as before.
    """
    tables = _match_tables(model, values)
    if tables:
        rest = {n: a for n, a in values.arrays.items() if _kind(n) not in _TABLES}
        values = NamedValues(rest, values.source)
    wanted = _find_variables(model)
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
    for layer, ids, rows, seed in tables:
        layer.load_rows(ids, rows, int(seed))
    for name, variable in wanted.items():
        variable.assign(values.arrays[pairs[name]])
    for layer in nested_layers(model):
        if isinstance(layer, keras.layers.Normalization):
            layer.finalize_state()  # it computes with a copy of its variables


@dataclass(frozen=True, slots=True)
class Fit:
    """How the values of a file fit a model.

    Attributes:
        taken: variables and tables that have their values from it.
        fresh: variables and tables that have not, and why if their shapes differ.
        unused: values that no variable takes.
    """

    taken: tuple[str, ...]
    fresh: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()


def assign_matching(model: keras.Model, values: NamedValues) -> Fit:
    """Give the weights of a model those values of a file that have their name and shape."""
    taken, fresh = [], []
    for name, variable in _find_variables(model).items():
        value, shape = values.arrays.get(name), tuple(variable.shape)
        if value is not None and tuple(value.shape) == shape:
            variable.assign(value)
            taken.append(name)
        else:
            fresh.append(name if value is None else f"{name} {shape}, there {value.shape}")
    for layer in embedding_layers(model):
        names = [f"{layer.path}/{kind}" for kind in _TABLES]
        ids, rows, seed = (values.arrays.get(name) for name in names)
        if ids is None or rows is None or seed is None or rows.shape[1:] != (layer.output_dim,):
            fresh.append(f"{layer.path}/{ROWS}")
        else:
            layer.load_rows(ids, rows, int(seed))
            taken += names
    return Fit(tuple(taken), tuple(fresh), tuple(n for n in values.arrays if n not in taken))


def embedding_layers(model: keras.Model) -> list[Embedding]:
    """Return the layers whose rows are in tables of the job."""
    return [layer for layer in nested_layers(model) if isinstance(layer, Embedding)]


def _match_tables(
    model: keras.Model, values: NamedValues
) -> list[tuple[Embedding, npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]]:
    """Return ids, rows and seed of a file for each embedding layer; none if either has no tables.

    Rows are as many as training has made, so they fit no shape. Layers and rows belong together
    in their order, as names may have shifted.
    """
    layers = embedding_layers(model)
    ids = [name for name in values.arrays if _kind(name) == IDS]
    if not layers or not ids:
        return []
    if len(layers) != len(ids):
        raise _other_model(
            values.source,
            f"the model has {len(layers)} embedding tables, and the file {len(ids)}",
        )
    found = []
    for layer, name in zip(layers, ids, strict=True):
        rows = values.arrays.get(name.replace(IDS, ROWS))
        seed = values.arrays.get(name.replace(IDS, SEED))
        if rows is None or seed is None or rows.shape[1:] != (layer.output_dim,):
            raise _other_model(
                values.source, f"its table {layer.name} has no rows of {layer.output_dim} numbers"
            )
        found.append((layer, values.arrays[name], rows, seed))
    return found


def _kind(name: str) -> str:
    return name.rpartition("/")[2].partition("#")[0]


def _find_variables(model: keras.Model) -> dict[str, keras.Variable]:
    """Return the variables that a file of values has, by unique name, without those of tables."""
    return {
        name: variable
        for name, variable in _variables_by_name(model).items()
        if "string" not in str(variable.dtype) and _kind(name) not in _TABLES
    }


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
