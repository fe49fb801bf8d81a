"""Arrays become records: tf.Examples in a RecordIO file, and a layout by which they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import recordio
from edl_keras.errors import kind_of, wrong_argument
from recordio import example

Array = np.ndarray[Any, Any]

_BLOCK = 4096
"""The number of records that are encoded together."""
_MIN_PACKED = 16
"""The number of values from which integers of one byte are kept as they are."""


@dataclass(frozen=True, slots=True)
class ArrayFeature:
    """The place of one array in a record.

    Attributes:
        name: of the feature.
        path: leads to the array in the argument: keys of dictionaries and positions of lists.
        shape: of one row.
        dtype: of the array, as TensorFlow names it.
        stored: what a record has: "float", "int", "text", or "octets" in the order of the array.
    """

    name: str
    path: tuple[str | int, ...]
    shape: tuple[int, ...]
    dtype: str
    stored: str


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """The features of x, of y and of the sample weights; empty for what there is not."""

    x: tuple[ArrayFeature, ...]
    y: tuple[ArrayFeature, ...] = ()
    weights: tuple[ArrayFeature, ...] = ()

    @property
    def features(self) -> tuple[ArrayFeature, ...]:
        """All of them."""
        return (*self.x, *self.y, *self.weights)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values, for the model file."""
        return asdict(self)


def describe_arrays(argument: str, value: Any) -> tuple[ArrayFeature, ...]:
    """Return a feature for each array of an argument: an array, or lists and dicts of arrays.

    Raises:
        Problem: an array has values that records cannot hold.
    """
    return tuple(_describe(argument, path, array) for path, array in flatten_arrays(value))


def flatten_arrays(
    value: Any, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], Array]]:
    """Yield the arrays of a structure and their paths."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from flatten_arrays(each, (*path, key))
    elif isinstance(value, list | tuple):
        for position, each in enumerate(value):
            yield from flatten_arrays(each, (*path, position))
    elif value is not None:
        yield path, value


def write_records(
    file: Path, layout: RecordLayout, arrays: dict[str, Array], order: Sequence[int] | Array
) -> None:
    """Write rows of arrays as records.

    Args:
        arrays: by the names of features.
        order: the numbers of the rows to write.
    """
    rows = np.asarray(order, np.int64)
    encoders = [(each, _encoder(each)) for each in sorted(layout.features, key=lambda it: it.name)]
    with recordio.Writer(str(file)) as writer:
        for begin in range(0, len(rows), _BLOCK):
            block = rows[begin : begin + _BLOCK]
            columns = [encode(arrays[feature.name][block]) for feature, encode in encoders]
            for parts in zip(*columns, strict=True):
                writer.write(example.join(parts))


def _describe(argument: str, path: tuple[str | int, ...], array: Array) -> ArrayFeature:
    label = argument + "".join(f"[{part!r}]" for part in path)
    name = "/".join((argument, *map(str, path)))
    kind, shape = array.dtype.kind, tuple(array.shape[1:])
    if kind in "OSU":
        _check_texts(argument, label, array)
        return ArrayFeature(name, path, shape, "string", "text")
    if kind not in "biuf" or array.dtype.itemsize > 8:
        raise wrong_argument(
            argument,
            f"{label} has the dtype {array.dtype}, which no model takes",
            "Convert it to numbers or texts first.",
        )
    count = int(np.prod(shape))
    if kind == "f":
        # Records have floats of 32 bits, as models have.
        dtype = "float16" if array.dtype.itemsize == 2 else "float32"
        return ArrayFeature(name, path, shape, dtype, "float")
    if array.dtype == np.uint64 and array.size and int(array.max()) >= 1 << 63:
        raise wrong_argument(
            argument, f"{label} has integers above 2⁶³", "Use texts for ids as large as these."
        )
    packed = array.dtype.itemsize == 1 and count >= _MIN_PACKED
    return ArrayFeature(name, path, shape, array.dtype.name, "octets" if packed else "int")


def _check_texts(argument: str, label: str, array: Array) -> None:
    if array.dtype.kind != "O":
        return
    for value in array.reshape(-1):
        if not isinstance(value, str | bytes):
            raise wrong_argument(
                argument,
                f"{label} has {kind_of(value)} ({value!r}) among its values",
                "Give an array of numbers, or of texts without missing values.",
            )


def _encoder(feature: ArrayFeature) -> Callable[[Array], list[bytes]]:
    name = feature.name
    match feature.stored:
        case "octets":
            return lambda rows: [example.encode_feature(name, row.tobytes()) for row in rows]
        case "float":
            return lambda rows: [
                example.encode_feature(name, row)
                for row in rows.astype(np.float32).reshape(len(rows), -1)
            ]
        case "int":
            return lambda rows: [
                example.encode_feature(name, row)
                for row in rows.astype(np.int64).reshape(len(rows), -1)
            ]
    return lambda rows: [
        example.encode_feature(name, row.tolist())
        for row in rows.astype(object).reshape(len(rows), -1)
    ]
