"""``feature_columns`` and ``label_columns``: dtype and shape of what an input function returns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2
from edl_worker.model_file.arguments import Definition


@dataclass(frozen=True, slots=True)
class Column:
    """A numeric column: shape without the batch dimension."""

    key: str
    shape: tuple[int, ...]
    dtype: tf.DType
    normalizer: Any = None


def read_columns(part: Definition, value: Any) -> tuple[Column, ...]:
    """The columns that a ``feature_columns()`` or ``label_columns()`` returned.

    Raises:
        EdlError: MODEL_CONTRACT, if one is no ``tf.feature_column.numeric_column``.
    """
    items = list(value) if isinstance(value, Sequence) and not hasattr(value, "key") else [value]
    columns = []
    for item in items:
        shape, dtype = getattr(item, "shape", None), getattr(item, "dtype", None)
        if not hasattr(item, "key") or shape is None or dtype is None:
            raise EdlError(
                error_pb2.MODEL_CONTRACT,
                f"{part.signature} returned a {type(item).__name__}, not a numeric column",
                where=part.where,
                remedy="Return a list of tf.feature_column.numeric_column(key=..., "
                "dtype=..., shape=[...]); do other preprocessing in the input function or "
                "in Keras layers.",
            )
        shape = tuple(shape) if isinstance(shape, Sequence) else (int(shape),)
        columns.append(
            Column(item.key, shape, tf.as_dtype(dtype), getattr(item, "normalizer_fn", None))
        )
    return tuple(columns)


def shape_features(
    features: Mapping[str, Any], columns: Sequence[Column], where: str
) -> dict[str, tf.Tensor]:
    """The columns' features with their dtype and shape.

    Raises:
        EdlError: SHAPE_MISMATCH.
    """
    if not isinstance(features, Mapping):
        if len(columns) != 1:
            raise _mismatch(
                f"the features are no dictionary, and there are {len(columns)} feature columns",
                where,
                "Return ({column key: batch of values}, labels).",
            )
        features = {columns[0].key: features}
    shaped = {}
    for column in columns:
        if column.key not in features:
            raise _mismatch(
                f"the features lack the column {column.key}; they are {', '.join(features)}",
                where,
                f"Return a dictionary with the key {column.key}, or mend feature_columns.",
            )
        shaped[column.key] = _shape(features[column.key], column, where, scalar_stays=False)
    return shaped


def shape_labels(labels: Any, columns: Sequence[Column], where: str) -> Any:
    """Labels with the columns' dtype and shape; a nest of them when there are several columns.

    A column of shape (1,) is one number per record, which may come as shape (batch,) or
    (batch, 1); losses care, so it stays as it comes.

    Raises:
        EdlError: SHAPE_MISMATCH.
    """
    if isinstance(labels, Mapping):
        return {
            column.key: _shape(labels[column.key], column, where, scalar_stays=True)
            for column in columns
            if column.key in labels
        }
    if len(columns) == 1:
        return _shape(labels, columns[0], where, scalar_stays=True)
    return tuple(
        _shape(value, column, where, scalar_stays=True)
        for value, column in zip(labels, columns, strict=True)
    )


def _shape(value: Any, column: Column, where: str, *, scalar_stays: bool) -> tf.Tensor:
    found = tuple(np.shape(value))
    wanted = column.shape
    is_number = isinstance(value, np.ndarray) and value.dtype.kind in "biuf"
    if is_number and column.dtype.is_numpy_compatible:
        value = value.astype(column.dtype.as_numpy_dtype, copy=False)
    tensor = tf.convert_to_tensor(value)
    if tensor.dtype != column.dtype:
        try:
            tensor = tf.cast(tensor, column.dtype)
        except (ValueError, TypeError, tf.errors.OpError) as error:
            raise _mismatch(
                f"{column.key} has dtype {tensor.dtype.name}, its column {column.dtype.name}",
                where,
                "Convert it in the input function.",
            ) from error
    stays = found[1:] == wanted or (scalar_stays and wanted == (1,) and len(found) == 1)
    if not stays:
        if not found or math.prod(found[1:]) != math.prod(wanted):
            raise _mismatch(
                f"{column.key} has shape {found[1:]} per record, its column has {wanted}",
                where,
                "Make the column's shape and the input function agree.",
            )
        tensor = tf.reshape(tensor, (found[0], *wanted))
    return column.normalizer(tensor) if column.normalizer is not None else tensor


def _mismatch(what: str, where: str, remedy: str) -> EdlError:
    return EdlError(error_pb2.SHAPE_MISMATCH, what, where=where, remedy=remedy)
