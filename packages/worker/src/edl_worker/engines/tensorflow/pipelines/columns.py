"""``feature_columns`` and ``label_columns``: dtype and shape of what an input function returns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from edl_proto.errors import EdlError, ErrorCode


@dataclass(frozen=True, slots=True)
class Column:
    """A numeric column: shape without the batch dimension."""

    key: str
    shape: tuple[int, ...]
    dtype: tf.DType
    normalizer: Any = None


def shape_features(
    features: Mapping[str, Any], columns: Sequence[Column], where: str
) -> dict[str, tf.Tensor]:
    """Return the columns' features with their dtype and shape. Raises: EdlError: SHAPE_MISMATCH."""
    if not isinstance(features, Mapping):
        if len(columns) != 1:
            raise _mismatch(
                f"there are {len(columns)} feature columns, but the features are not a dictionary",
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
                f"Return a dictionary with the key {column.key}, or correct feature_columns.",
            )
        shaped[column.key] = _shape(features[column.key], column, where, keep_scalar=False)
    return shaped


def shape_labels(labels: Any, columns: Sequence[Column], where: str) -> Any:
    """Return labels with the columns' dtype and shape; a nest of them if there are several.

    A column of shape (1,) is one number per record. Its labels may have shape (batch,) or
    (batch, 1) and keep it, because losses treat the two differently.

    Raises:
        EdlError: SHAPE_MISMATCH.
    """
    if isinstance(labels, Mapping):
        return {
            column.key: _shape(labels[column.key], column, where, keep_scalar=True)
            for column in columns
            if column.key in labels
        }
    if len(columns) == 1:
        return _shape(labels, columns[0], where, keep_scalar=True)
    return tuple(
        _shape(value, column, where, keep_scalar=True)
        for value, column in zip(labels, columns, strict=True)
    )


def _shape(value: Any, column: Column, where: str, *, keep_scalar: bool) -> tf.Tensor:
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
    fits = found[1:] == wanted or (keep_scalar and wanted == (1,) and len(found) == 1)
    if not fits:
        if not found or math.prod(found[1:]) != math.prod(wanted):
            raise _mismatch(
                f"{column.key} has shape {found[1:]} per record, its column has {wanted}",
                where,
                "Make the column's shape and the input function agree.",
            )
        tensor = tf.reshape(tensor, (found[0], *wanted))
    return column.normalizer(tensor) if column.normalizer is not None else tensor


def _mismatch(what: str, where: str, remedy: str) -> EdlError:
    return EdlError(ErrorCode.SHAPE_MISMATCH, what, where=where, remedy=remedy)
