"""ElasticDL's own feature columns, and feature columns as data for saved models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf


@dataclass(frozen=True)
class TableEmbeddingColumn:
    """An embedding column whose rows are stored with the parameters."""

    categorical_column: Any
    dimension: int
    combiner: str
    initializer: Any
    max_norm: float | None
    trainable: bool

    @property
    def name(self) -> str:
        return f"{self.categorical_column.name}_embedding"


@dataclass(frozen=True)
class ConcatenatedColumn:
    """The ids of several categorical columns in one, each moved behind those before it."""

    categorical_columns: tuple[Any, ...]

    @property
    def name(self) -> str:
        return "_C_".join(sorted(column.name for column in self.categorical_columns))

    @property
    def num_buckets(self) -> int:
        return sum(column.num_buckets for column in self.categorical_columns)


# TensorFlow's columns take only their own kind.
_bases: Any = type(tf.feature_column.categorical_column_with_identity("id", 1)).__mro__
next(base for base in _bases if base.__name__ == "CategoricalColumn").register(ConcatenatedColumn)


def embedding_column(
    categorical_column: Any,
    dimension: int,
    combiner: str = "mean",
    initializer: Any = None,
    max_norm: float | None = None,
    trainable: bool = True,
) -> TableEmbeddingColumn:
    """Return ElasticDL's ``embedding_column``, whose rows are an embedding table."""
    if not dimension or dimension < 1:
        raise ValueError(f"the dimension of an embedding must be positive, not {dimension}")
    return TableEmbeddingColumn(
        categorical_column, dimension, combiner, initializer, max_norm, trainable
    )


def concatenated_categorical_column(categorical_columns: Sequence[Any]) -> Any:
    """Return ElasticDL's ``concatenated_categorical_column``."""
    if not isinstance(categorical_columns, list | tuple) or not categorical_columns:
        raise ValueError("categorical_columns must be a list of columns")
    return ConcatenatedColumn(tuple(categorical_columns))


# Columns as data, for saved models: name of the class, how to make one, and its arguments.

_fc = tf.feature_column
_MAKERS: dict[str, tuple[Callable[..., Any], dict[str, str]]] = {
    "NumericColumn": (
        _fc.numeric_column,
        {"key": "key", "shape": "shape", "default_value": "default_value"},
    ),
    "BucketizedColumn": (
        _fc.bucketized_column,
        {"source_column": "source_column", "boundaries": "boundaries"},
    ),
    "HashedCategoricalColumn": (
        _fc.categorical_column_with_hash_bucket,
        {"key": "key", "hash_bucket_size": "hash_bucket_size", "dtype": "dtype"},
    ),
    "IdentityCategoricalColumn": (
        _fc.categorical_column_with_identity,
        {"key": "key", "num_buckets": "number_buckets", "default_value": "default_value"},
    ),
    "VocabularyListCategoricalColumn": (
        _fc.categorical_column_with_vocabulary_list,
        {
            "key": "key",
            "vocabulary_list": "vocabulary_list",
            "dtype": "dtype",
            "default_value": "default_value",
            "num_oov_buckets": "num_oov_buckets",
        },
    ),
    "CrossedColumn": (
        _fc.crossed_column,
        {"keys": "keys", "hash_bucket_size": "hash_bucket_size", "hash_key": "hash_key"},
    ),
    "IndicatorColumn": (
        _fc.indicator_column,
        {"categorical_column": "categorical_column"},
    ),
    "EmbeddingColumn": (
        _fc.embedding_column,
        {
            "categorical_column": "categorical_column",
            "dimension": "dimension",
            "combiner": "combiner",
            "max_norm": "max_norm",
            "trainable": "trainable",
        },
    ),
    "TableEmbeddingColumn": (
        embedding_column,
        {
            "categorical_column": "categorical_column",
            "dimension": "dimension",
            "combiner": "combiner",
            "max_norm": "max_norm",
            "trainable": "trainable",
        },
    ),
    "ConcatenatedColumn": (
        concatenated_categorical_column,
        {"categorical_columns": "categorical_columns"},
    ),
}


def encode(value: Any) -> Any:
    """Return a column, or an argument of one, in a form that JSON can hold."""
    kind = type(value).__name__
    if kind in _MAKERS:
        if getattr(value, "normalizer_fn", None) is not None:
            raise NotImplementedError("a column with a normalizer_fn cannot be saved")
        _, arguments = _MAKERS[kind]
        return {"column": kind, **{a: encode(getattr(value, f)) for a, f in arguments.items()}}
    if isinstance(value, tf.DType):
        return value.name
    return [encode(item) for item in value] if isinstance(value, list | tuple) else value


def decode(value: Any) -> Any:
    """Return the column, or the argument, that ``encode`` encoded."""
    if isinstance(value, Mapping) and "column" in value:
        make, _ = _MAKERS[value["column"]]
        arguments = {a: decode(v) for a, v in value.items() if a != "column"}
        if "dtype" in arguments:
            arguments["dtype"] = tf.as_dtype(arguments["dtype"])
        return make(**arguments)
    return [decode(item) for item in value] if isinstance(value, list | tuple) else value
