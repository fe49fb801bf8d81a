"""Columns: a list of numeric columns, or a function that returns one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from edl_worker.engines.tensorflow.pipelines.columns import Column
from edl_worker.model_file.arguments import Definition
from edl_worker.model_file.definition_caller import DefinitionCaller
from edl_worker.model_file.errors import type_with_article


def adapt_columns(definition: Definition, caller: DefinitionCaller) -> tuple[Column, ...]:
    """Return the columns of ``feature_columns`` or ``label_columns``.

    Raises:
        EdlError: MODEL_CONTRACT, if one is not a ``tf.feature_column.numeric_column``.
    """
    value = caller.call(definition) if callable(definition.value) else definition.value
    items = list(value) if isinstance(value, Sequence) and not hasattr(value, "key") else [value]
    return tuple(_column(definition, item) for item in items)


def _column(definition: Definition, item: Any) -> Column:
    shape, dtype = getattr(item, "shape", None), getattr(item, "dtype", None)
    if not hasattr(item, "key") or shape is None or dtype is None:
        raise definition.error(
            f"returned {type_with_article(item)}, not a numeric column",
            "Return a list of tf.feature_column.numeric_column(key=..., dtype=..., shape=[...]). "
            "Do other preprocessing in the input function or in Keras layers.",
        )
    shape = tuple(shape) if isinstance(shape, Sequence) else (int(shape),)
    return Column(item.key, shape, tf.as_dtype(dtype), getattr(item, "normalizer_fn", None))
