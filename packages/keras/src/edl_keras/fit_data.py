"""The data of ``fit``: arrays, tables and pipelines become arrays of equal length."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import keras
import numpy as np

from edl.plugins.errors import Problem
from edl_keras.errors import kind_of, wrong_argument
from edl_keras.records import (
    Array,
    ArrayFeature,
    RecordLayout,
    describe_arrays,
    flatten_arrays,
    write_records,
)

Rows = Sequence[int] | Array


@dataclass(frozen=True, slots=True)
class ArrayData:
    """The x, y and sample weights of equal length.

    Attributes:
        batch_size: of the pipeline that they came from; None: they were arrays.
    """

    x: Any
    y: Any = None
    weights: Any = None
    batch_size: int | None = None

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(next(flatten_arrays(self.x))[1])

    def take(self, rows: slice) -> ArrayData:
        """Return some of the rows."""
        x, y, weights = (_map(each, lambda it: it[rows]) for each in self._parts)
        return ArrayData(x, y, weights, self.batch_size)

    def layout(self) -> RecordLayout:
        """Return how records hold the arrays.

        Raises:
            Problem: records cannot hold some of the values.
        """
        features = [
            describe_arrays(name, value)
            for name, value in zip(("x", "y", "sample_weight"), self._parts, strict=True)
        ]
        return RecordLayout(*features)

    def write(self, file: Path, layout: RecordLayout, rows: Rows) -> None:
        """Write rows as records, in the order of their numbers."""
        arrays = {
            feature.name: array
            for part, value in zip((layout.x, layout.y, layout.weights), self._parts, strict=True)
            for feature, (_, array) in zip(part, flatten_arrays(value), strict=True)
        }
        write_records(file, layout, arrays, rows)

    @property
    def _parts(self) -> tuple[Any, Any, Any]:
        return self.x, self.y, self.weights


def read_data(
    x: Any, y: Any = None, weights: Any = None, names: str = "x y sample_weight"
) -> ArrayData:
    """Return the arrays of the arguments of ``fit``.

    Args:
        names: of the three arguments, for messages.

    Raises:
        Problem: they are of a kind that cannot be used, or their lengths differ.
    """
    name_x, name_y, name_weights = names.split()
    if _is_dataset(x):
        if y is not None or weights is not None:
            raise wrong_argument(
                name_y if y is not None else name_weights,
                f"{name_x} is a tf.data pipeline, which yields labels and weights itself",
                f"Leave {name_y} and {name_weights} out.",
            )
        return _read_pipeline(name_x, x)
    data = ArrayData(
        _read(name_x, x),
        None if y is None else _read(name_y, y),
        None if weights is None else _read(name_weights, weights),
    )
    _check_lengths((name_x, data.x), (name_y, data.y), (name_weights, data.weights))
    return data


def read_validation_data(value: Any) -> ArrayData:
    """Return the arrays of ``validation_data``: (x, y), (x, y, weights) or a pipeline.

    Raises:
        Problem: they cannot be used.
    """
    name = "validation_data"
    if _is_dataset(value):
        return _read_pipeline(name, value)
    if not isinstance(value, tuple | list) or len(value) not in (2, 3):
        raise wrong_argument(
            name,
            f"validation_data is {kind_of(value)}, not (x, y) or (x, y, weights)",
            "Write validation_data=(x_test, y_test).",
        )
    x, y, weights = (*value, None)[:3]
    return read_data(x, y, weights, " ".join((name,) * 3))


def split_data(data: ArrayData, validation_split: float) -> tuple[ArrayData, ArrayData | None]:
    """Return the rows to train on, and the last ones to validate with, as Keras splits them.

    Raises:
        Problem: the part is no part, or leaves no rows.
    """
    if not validation_split:
        return data, None
    name = "validation_split"
    if not 0 < validation_split < 1:
        raise wrong_argument(
            name, f"validation_split is {validation_split}, not between 0 and 1", "Write 0.2."
        )
    if data.batch_size is not None:
        raise wrong_argument(
            name,
            "validation_split divides arrays, and x is a tf.data pipeline",
            "Give the pipeline of the validation data: validation_data=x.take(100).",
        )
    at = int(data.count * (1 - validation_split))
    if at in (0, data.count):
        raise wrong_argument(
            name,
            f"validation_split={validation_split} leaves no rows on one side of {data.count}",
            "Give more rows, or another part.",
        )
    return data.take(slice(0, at)), data.take(slice(at, None))


def weigh_classes(
    data: ArrayData, class_weight: Mapping[int, float], known: int | None = None
) -> ArrayData:
    """Return the data with a weight for each row, that of its class.

    Args:
        known: the number of classes that the model has; None if it is not known.

    Raises:
        Problem: the rows have weights already, or no single class, or there is no such class.
    """
    name = "class_weight"
    if data.weights is not None:
        raise wrong_argument(
            name, "class_weight and sample_weight cannot be combined", "Multiply the weights."
        )
    arrays = [array for _, array in flatten_arrays(data.y)]
    if len(arrays) != 1 or arrays[0].dtype.kind not in "biuf":
        raise wrong_argument(
            name, "class_weight needs one array of labels", "Use sample_weight for several outputs."
        )
    labels = arrays[0]
    if labels.ndim > 2:
        raise wrong_argument(
            name, "class_weight needs one class for each row", "Use sample_weight instead."
        )
    wide = labels.ndim == 2 and labels.shape[1] > 1
    classes = labels.argmax(axis=1) if wide else labels.reshape(-1).astype(np.int64)
    weights = np.ones(len(classes), np.float32)
    for number, weight in class_weight.items():
        if known is not None and int(number) not in range(known) and int(number) not in classes:
            raise wrong_argument(
                name,
                f"class_weight has the class {number}, and the model has the classes 0 to "
                f"{known - 1}",
                "Name the classes by their numbers in y, from 0 on: {0: 1.0, 1: 5.0}.",
            )
        weights[classes == int(number)] = weight
    return replace(data, weights=weights)


def with_unit_weights(data: ArrayData) -> ArrayData:
    """Return the data with weights, each of them 1 if it had none."""
    if data.weights is not None:
        return data
    return replace(data, weights=np.ones(data.count, np.float32))


def fit_labels(data: ArrayData, model: keras.Model) -> ArrayData:
    """Return the data with labels of the rank of the outputs: Keras adds a last dimension of 1."""
    outputs = getattr(model, "outputs", None)
    arrays = list(flatten_arrays(data.y))
    if not outputs or len(outputs) != len(arrays) or (len(arrays) > 1 and isinstance(data.y, dict)):
        return data
    shapes = iter([tuple(each.shape) for each in outputs])

    def fit(array: Array) -> Array:
        shape = next(shapes)
        return array[..., np.newaxis] if len(shape) == array.ndim + 1 and shape[-1] == 1 else array

    return replace(data, y=_map(data.y, fit))


def same_layout(one: RecordLayout, other: RecordLayout) -> RecordLayout:
    """Return a layout for the records of two data sets.

    Raises:
        Problem: their arrays have other names or shapes.
    """
    first, second = ({each.name: each for each in layout.features} for layout in (one, other))
    if _forms(first) != _forms(second):
        raise wrong_argument(
            "validation_data",
            f"the validation data has {_describe(second)}, the training data {_describe(first)}",
            "Give both the same arrays, with rows of the same shape.",
        )

    def join(features: tuple[ArrayFeature, ...]) -> tuple[ArrayFeature, ...]:
        return tuple(_join(each, second[each.name]) for each in features)

    return RecordLayout(join(one.x), join(one.y), join(one.weights))


def _forms(features: Mapping[str, ArrayFeature]) -> dict[str, tuple[tuple[int, ...], bool]]:
    return {name: (each.shape, each.stored == "text") for name, each in features.items()}


def _describe(features: Mapping[str, ArrayFeature]) -> str:
    return ", ".join(f"{name} of {list(each.shape)}" for name, each in features.items())


def _join(one: ArrayFeature, other: ArrayFeature) -> ArrayFeature:
    if one == other:
        return one
    dtype = str(np.promote_types(one.dtype, other.dtype))
    if "float" in (one.stored, other.stored):
        return replace(one, stored="float", dtype="float32")
    return replace(one, stored="int", dtype=dtype)


def _map(value: Any, change: Any) -> Any:
    if isinstance(value, dict):
        return {key: _map(each, change) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return tuple(_map(each, change) for each in value)
    return None if value is None else change(value)


def _check_lengths(*parts: tuple[str, Any]) -> None:
    lengths = [
        (name + "".join(f"[{part!r}]" for part in path), len(array))
        for name, value in parts
        for path, array in flatten_arrays(value)
    ]
    first = parts[0][0]
    if len({length for _, length in lengths}) > 1:
        raise wrong_argument(
            first,
            "the arrays have different numbers of rows: "
            + ", ".join(f"{name} has {length}" for name, length in lengths),
            "Give one row of each array for each example.",
        )
    if not lengths or not lengths[0][1]:
        raise wrong_argument(first, "the data has no rows", "Give at least one.")


def _read(name: str, value: Any) -> Any:
    if hasattr(value, "columns") and hasattr(value, "to_numpy"):
        return _read_table(name, value)
    if isinstance(value, Mapping):
        return {str(key): _read(name, each) for key, each in value.items()}
    if isinstance(value, list | tuple) and any(_is_array(each) for each in value):
        return tuple(_read(name, each) for each in value)
    if isinstance(value, list | tuple | str | bytes) or _is_array(value):
        if isinstance(value, str | bytes):
            raise wrong_argument(name, f"{name} is a text", "Give an array of texts.")
        try:
            array = np.asarray(value.to_numpy() if hasattr(value, "to_numpy") else value)
        except ValueError:
            raise _lengths_differ(name, value) from None
        if array.ndim:
            return array
    raise wrong_argument(
        name,
        f"{name} is {kind_of(value)}, not an array",
        "Give numpy arrays, a list or dict of arrays, a table of pandas, or a finite tf.data"
        " pipeline. Collect what a generator yields into arrays first.",
    )


def _lengths_differ(name: str, value: Any) -> Problem:
    """Return the error for lists of other lengths than the first one."""
    lengths = [len(each) if hasattr(each, "__len__") else -1 for each in value]
    row = next((at for at, length in enumerate(lengths) if length != lengths[0]), 0)
    return wrong_argument(
        name,
        f"the rows of {name} have different numbers of values: row 0 has {lengths[0]}, row {row} "
        f"has {lengths[row]}",
        f"Pad them: {name} = keras.utils.pad_sequences({name}). Or correct the row.",
    )


def _is_array(value: Any) -> bool:
    return hasattr(value, "__array__") or hasattr(value, "to_numpy")


def _read_table(name: str, table: Any) -> Any:
    """Return one array of a table of numbers, and arrays by column of one with texts."""
    columns = {str(column): np.asarray(table[column].to_numpy()) for column in table.columns}
    if all(array.dtype.kind in "biuf" for array in columns.values()):
        return np.asarray(table.to_numpy())
    return columns


def _is_dataset(value: Any) -> bool:
    return hasattr(value, "element_spec") and hasattr(value, "cardinality")


def _read_pipeline(name: str, dataset: Any) -> ArrayData:
    """Return all rows that a pipeline of ``tf.data`` yields in one pass."""
    if int(dataset.cardinality()) == -1:
        raise wrong_argument(
            name,
            f"{name} is a pipeline without an end, so no record of it can train exactly once",
            "Leave .repeat() out: epochs says how often the data is used.",
        )
    batches = []
    for batch in dataset.as_numpy_iterator():
        parts = batch if isinstance(batch, tuple) else (batch,)
        if not 1 <= len(parts) <= 3 or any(
            not getattr(array, "ndim", 0) for part in parts for _, array in flatten_arrays(part)
        ):
            raise wrong_argument(
                name,
                f"{name} does not yield batches of (features, labels)",
                "Write dataset.batch(32), as for Keras's own fit.",
            )
        batches.append(parts)
    if not batches:
        raise wrong_argument(name, f"{name} yields nothing", "Give at least one batch.")
    joined = tuple(
        _concatenate([batch[number] for batch in batches]) for number in range(len(batches[0]))
    )
    x, y, weights = itertools.islice(itertools.chain(joined, (None,) * 3), 3)
    _check_lengths((name, x), ("its labels", y), ("its weights", weights))
    size = len(next(flatten_arrays(batches[0][0]))[1])
    return ArrayData(x, y, weights, size)


def _concatenate(parts: Sequence[Any]) -> Any:
    first = parts[0]
    if isinstance(first, dict):
        return {key: _concatenate([part[key] for part in parts]) for key in first}
    if isinstance(first, list | tuple):
        return tuple(_concatenate(list(each)) for each in zip(*parts, strict=True))
    return np.concatenate(parts)
