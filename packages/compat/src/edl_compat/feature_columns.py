"""``DenseFeatures``, which Keras 3 does not have, for the feature columns of TensorFlow.

Ids of a categorical column are an int64 tensor of shape (batch, values), in which -1 stands for no
value. As in TensorFlow, empty strings and -1 of integers are no values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from edl_compat.columns import (
    TableEmbeddingColumn,
    decode,
    encode,
)
from edl_compat.preprocessing import (
    VocabularyLookup,
    hash_bucket,
    missing_value,
    on_values,
    read_vocabulary,
    sparse,
)
from edl_worker.model_file.errors import type_with_article
from elasticdl import layers

Features = Mapping[str, Any]
_HASH_KEY = 0xDECAFCAFFE  # what crossed_column uses if it is given none


@keras.saving.register_keras_serializable(package="elasticdl")
class DenseFeatures(keras.layers.Layer):
    """Makes one dense tensor of features by feature columns, in the order of the columns' names.

    Inputs: a dictionary of tensors of shape (batch,) or (batch, values), dense or sparse.
    Outputs: float32 of shape (batch, sum of the columns' widths).
    """

    def __init__(self, feature_columns: Any, trainable: bool = True, **kwargs: Any) -> None:
        super().__init__(trainable=trainable, **kwargs)
        columns = list(feature_columns) if _is_list(feature_columns) else [feature_columns]
        self._columns = sorted(columns, key=lambda column: str(column.name))
        self._dense = [_dense_column(column) for column in self._columns]
        self.lookups = [dense.rows for dense in self._dense if dense.rows is not None]

    def build(self, input_shape: Any = None) -> None:
        for lookup in self.lookups:
            lookup.build(None)

    def call(self, features: Features, training: bool | None = None) -> tf.Tensor:
        if not isinstance(features, Mapping):
            raise ValueError("DenseFeatures takes a dictionary of features by name")
        return tf.concat([dense.values(features) for dense in self._dense], -1)

    def compute_output_spec(self, features: Any, training: bool | None = None) -> Any:
        batch = next(iter(features.values())).shape[0]
        return keras.KerasTensor((batch, sum(d.width for d in self._dense)), self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        columns = [encode(column) for column in self._columns]
        return {**super().get_config(), "feature_columns": columns}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> DenseFeatures:
        columns = [decode(column) for column in config.pop("feature_columns")]
        return cls(columns, **config)


def _is_list(value: Any) -> bool:
    """Return whether a value is a list of columns; TensorFlow's columns are tuples themselves."""
    return not hasattr(value, "name") and not isinstance(value, Mapping)


# Dense columns.


@dataclass(frozen=True)
class _Dense:
    """A column as numbers.

    Attributes:
        width: numbers per example.
        values: of the features, float32 of shape (batch, width).
        rows: the layer with the weights of the column, if it has weights.
    """

    width: int
    values: Callable[[Features], tf.Tensor]
    rows: keras.layers.Layer | None = None


def _dense_column(column: Any) -> _Dense:
    match type(column).__name__:
        case "NumericColumn":
            return _Dense(math.prod(column.shape), lambda features: _numbers(column, features))
        case "BucketizedColumn":
            buckets = len(column.boundaries) + 1
            width = buckets * math.prod(column.source_column.shape)
            return _Dense(
                width,
                lambda features: tf.reshape(
                    tf.one_hot(_buckets(column, features), buckets), [-1, width]
                ),
            )
        case "IndicatorColumn":
            ids, size = _categorical(column.categorical_column)
            return _Dense(size, lambda f: tf.reduce_sum(tf.one_hot(ids(f), size), 1))
        case "EmbeddingColumn" | "TableEmbeddingColumn":
            return _embedding(column)
        case kind:
            raise ValueError(
                f"edl does not support a {kind} in DenseFeatures: wrap a categorical column in "
                "indicator_column or embedding_column, or use Keras preprocessing layers"
            )


def _embedding(column: Any) -> _Dense:
    ids_of, size = _categorical(column.categorical_column)
    initializer = _initializer(column.initializer, column.dimension)
    options = {"embeddings_initializer": initializer, "trainable": column.trainable}
    rows: keras.layers.Layer
    if isinstance(column, TableEmbeddingColumn):
        rows = layers.Embedding(column.dimension, input_dim=size, **options)
    else:
        rows = keras.layers.Embedding(size, column.dimension, **options)

    def values(features: Features) -> tf.Tensor:
        ids = ids_of(features)
        given = tf.cast(ids >= 0, tf.float32)
        vectors = rows(tf.maximum(ids, 0))
        if column.max_norm is not None:
            vectors = tf.clip_by_norm(vectors, column.max_norm, axes=[-1])
        total = tf.reduce_sum(vectors * given[..., None], 1)
        number = tf.reduce_sum(given, 1, keepdims=True)
        by = {"sum": tf.ones_like(number), "mean": number, "sqrtn": tf.sqrt(number)}
        return tf.math.divide_no_nan(total, by[column.combiner])

    return _Dense(column.dimension, values, rows)


def _initializer(initializer: Any, dimension: int) -> Any:
    """Return a Keras initializer for that of a column, which is TensorFlow's own."""
    if initializer is None:
        return keras.initializers.TruncatedNormal(0.0, 1 / math.sqrt(dimension))
    if isinstance(initializer, keras.initializers.Initializer):
        return initializer
    if type(initializer).__name__ == "TruncatedNormal" and hasattr(initializer, "stddev"):
        return keras.initializers.TruncatedNormal(initializer.mean, initializer.stddev)
    return lambda shape, dtype=None: initializer(shape, dtype=tf.as_dtype(dtype or "float32"))


# Categorical columns: their ids, and the number of different ids.

_Ids = Callable[[Features], tf.Tensor]


def _categorical(column: Any) -> tuple[_Ids, int]:
    make = _CATEGORICAL.get(type(column).__name__)
    if make is None:
        raise ValueError(
            f"edl does not support {type_with_article(column)} as a categorical column; "
            "use Keras preprocessing layers"
        )
    return make(column), int(column.num_buckets)


def _hash_ids(column: Any) -> _Ids:
    return lambda features: _where_given(
        _cells(features, column.key), lambda cells: hash_bucket(cells, column.hash_bucket_size)
    )


def _identity(column: Any) -> _Ids:
    default = -1 if column.default_value is None else column.default_value

    def ids(cells: tf.Tensor) -> tf.Tensor:
        numbers = tf.cast(cells, tf.int64)
        inside = (numbers >= 0) & (numbers < column.number_buckets)
        return tf.where(inside, numbers, tf.cast(default, tf.int64))

    return lambda features: _where_given(_cells(features, column.key), ids)


def _vocabulary(column: Any) -> _Ids:
    if hasattr(column, "vocabulary_file"):
        values = read_vocabulary(column.vocabulary_file, column.vocabulary_size)
    else:
        values = read_vocabulary(column.vocabulary_list)
    lookup = VocabularyLookup(values, column.num_oov_buckets)

    def ids(cells: tf.Tensor) -> tf.Tensor:
        found = lookup(cells)
        return tf.where(found < 0, tf.cast(column.default_value, tf.int64), found)

    return lambda features: _where_given(_cells(features, column.key), ids)


def _bucketize_ids(column: Any) -> _Ids:
    size = len(column.boundaries) + 1

    def ids(features: Features) -> tf.Tensor:
        buckets = tf.cast(_buckets(column, features), tf.int64)
        return buckets + size * tf.range(tf.shape(buckets)[1], dtype=tf.int64)

    return ids


def _concatenate_ids(column: Any) -> _Ids:
    parts = [_categorical(part) for part in column.categorical_columns]

    def ids(features: Features) -> tf.Tensor:
        offset, moved = 0, []
        for ids_of, size in parts:
            found = ids_of(features)
            moved.append(tf.where(found < 0, found, found + offset))
            offset += size
        return tf.concat(moved, -1)

    return ids


def _cross_ids(column: Any) -> _Ids:
    def cells(key: Any) -> Callable[[Features], Any]:
        if isinstance(key, str):
            return lambda features: _given_cells(features, key)
        ids_of, _ = _categorical(key)
        return lambda features: sparse(ids_of(features), -1)

    parts = [cells(key) for key in column.keys]
    hash_key = _HASH_KEY if column.hash_key is None else column.hash_key

    def ids(features: Features) -> tf.Tensor:
        crossed = tf.sparse.cross_hashed(
            [part(features) for part in parts], column.hash_bucket_size, hash_key
        )
        return tf.sparse.to_dense(crossed, default_value=-1)

    return ids


_CATEGORICAL: dict[str, Callable[[Any], _Ids]] = {
    "HashedCategoricalColumn": _hash_ids,
    "IdentityCategoricalColumn": _identity,
    "VocabularyListCategoricalColumn": _vocabulary,
    "VocabularyFileCategoricalColumn": _vocabulary,
    "BucketizedColumn": _bucketize_ids,
    "CrossedColumn": _cross_ids,
    "ConcatenatedColumn": _concatenate_ids,
}


# Features.


def _cells(features: Features, key: str) -> tf.Tensor:
    """Return a feature as a dense tensor of shape (batch, values)."""
    if key not in features:
        raise ValueError(f"the features have no {key}; they are {', '.join(features)}")
    value = features[key]
    if isinstance(value, tf.SparseTensor):
        missing = missing_value(value.dtype)
        value = tf.sparse.to_dense(value, default_value=0.0 if missing is None else missing)
    elif isinstance(value, tf.RaggedTensor):
        missing = missing_value(value.dtype)
        value = value.to_tensor(default_value=0.0 if missing is None else missing)
    tensor = tf.convert_to_tensor(value)
    return tensor[:, None] if tensor.shape.rank == 1 else tensor


def _given_cells(features: Features, key: str) -> Any:
    """Return a feature as it is given; a cross takes empty strings for values."""
    value = features.get(key)
    return value if isinstance(value, tf.SparseTensor) else _cells(features, key)


def _where_given(cells: tf.Tensor, ids: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
    missing = missing_value(cells.dtype)
    found = tf.cast(ids(cells), tf.int64)
    if missing is None:
        return found
    return tf.where(tf.equal(cells, tf.cast(missing, cells.dtype)), tf.cast(-1, tf.int64), found)


def _numbers(column: Any, features: Features) -> tf.Tensor:
    cells = tf.cast(_cells(features, column.key), tf.float32)
    if column.normalizer_fn is not None:
        cells = column.normalizer_fn(cells)
    return tf.reshape(cells, [-1, math.prod(column.shape)])


def _buckets(column: Any, features: Features) -> tf.Tensor:
    numbers = _numbers(column.source_column, features)
    boundaries = [float(boundary) for boundary in column.boundaries]
    return on_values(
        lambda values: tf.raw_ops.Bucketize(input=values, boundaries=boundaries), numbers
    )
