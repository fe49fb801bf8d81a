"""The forms in which a dataset function may want rows of CSV: as text, as fields, as numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

RowForm = Callable[[tf.data.Dataset], tf.data.Dataset]


def row_forms(columns: Sequence[str]) -> list[RowForm]:
    """Return the forms in which the function may take a dataset of records, the usual one first.

    Files of ElasticDL take a row as a vector of its fields (``record[0]``).

    Args:
        columns: names of the columns; empty if the records are not rows.
    """
    defaults = [[""]] * len(columns)

    def fields(row: tf.Tensor) -> tf.Tensor:
        return tf.stack(tf.io.decode_csv(row, defaults))

    def as_text(dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset

    def as_fields(dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.map(fields)

    def as_numbers(dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.map(lambda row: tf.strings.to_number(fields(row)))

    return [as_text, as_fields, as_numbers] if columns else [as_text]


def has_labels_of_text(dataset: Any) -> bool:
    """Whether a dataset yields strings as labels, which no loss takes."""
    spec = getattr(dataset, "element_spec", None)
    if not isinstance(spec, tuple) or len(spec) < 2:
        return False
    return any(part.dtype == tf.string for part in tf.nest.flatten(spec[1]))
