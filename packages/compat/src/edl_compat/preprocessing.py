"""The layers of ``elasticdl_preprocessing``. Each takes dense, sparse and ragged tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import keras
import tensorflow as tf

_register = keras.saving.register_keras_serializable(package="elasticdl_preprocessing")


class _Elementwise(keras.layers.Layer):
    """A layer that changes each value by itself."""

    def call(self, inputs: Any) -> Any:
        return on_values(self.convert, inputs)

    def convert(self, values: tf.Tensor) -> tf.Tensor:
        """Return the new values of a dense tensor, in its shape."""
        raise NotImplementedError


def on_values(function: Callable[[tf.Tensor], tf.Tensor], inputs: Any) -> Any:
    """Apply a function to the values of a dense, sparse or ragged tensor."""
    match inputs:
        case tf.SparseTensor():
            return tf.SparseTensor(inputs.indices, function(inputs.values), inputs.dense_shape)
        case tf.RaggedTensor():
            return tf.ragged.map_flat_values(function, inputs)
        case _:
            return function(tf.convert_to_tensor(inputs))


@_register
class Discretization(_Elementwise):
    """The number of the bin that a value falls into; ``bins`` are the left ends."""

    def __init__(self, bins: Sequence[float], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.bins = list(bins)

    def num_bins(self) -> int:
        return len(self.bins) + 1

    def convert(self, values: tf.Tensor) -> tf.Tensor:
        boundaries = [float(b) for b in self.bins]
        return tf.cast(tf.raw_ops.Bucketize(input=values, boundaries=boundaries), tf.int64)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "bins": self.bins}


@_register
class Hashing(_Elementwise):
    """The hash of a value's text, modulo ``num_bins``."""

    def __init__(self, num_bins: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not num_bins or num_bins < 0:
            raise ValueError(f"num_bins must be positive, not {num_bins}")
        self.num_bins = num_bins

    def convert(self, values: tf.Tensor) -> tf.Tensor:
        return hash_bucket(values, self.num_bins)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_bins": self.num_bins}


@_register
class IndexLookup(_Elementwise):
    """The place of a string in the vocabulary; others follow after its end.

    Args:
        vocabulary: strings, or the path of a file with one in each line.
        num_oov_tokens: number of places for strings that are not in the vocabulary.
    """

    def __init__(
        self, vocabulary: Sequence[str] | str | None = None, num_oov_tokens: int = 1, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.num_oov_tokens = num_oov_tokens
        self.vocabulary = read_vocabulary(vocabulary)
        self._lookup = VocabularyLookup(self.vocabulary, num_oov_tokens)

    def vocab_size(self) -> int:
        return len(self.vocabulary) + self.num_oov_tokens

    def convert(self, values: tf.Tensor) -> tf.Tensor:
        return self._lookup(values)

    def get_config(self) -> dict[str, Any]:
        given = {"vocabulary": self.vocabulary, "num_oov_tokens": self.num_oov_tokens}
        return {**super().get_config(), **given}


@_register
class LogRound(_Elementwise):
    """The rounded logarithm of a value, or ``default_value`` if it is not in [0, num_bins)."""

    def __init__(
        self, num_bins: int, default_value: int = 0, base: float | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.num_bins = num_bins
        self.default_value = default_value
        self.base = base

    def convert(self, values: tf.Tensor) -> tf.Tensor:
        logarithms = tf.math.log(tf.cast(values, tf.float64))
        if self.base is not None:
            logarithms /= tf.math.log(tf.constant(self.base, tf.float64))
        return within(tf.round(logarithms), self.num_bins, self.default_value)

    def get_config(self) -> dict[str, Any]:
        given = {"num_bins": self.num_bins, "default_value": self.default_value, "base": self.base}
        return {**super().get_config(), **given}


@_register
class Normalizer(_Elementwise):
    """``(value - subtractor) / divisor``."""

    def __init__(self, subtractor: float, divisor: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if divisor == 0:
            raise ValueError("the divisor must not be 0")
        self.subtractor = subtractor
        self.divisor = divisor

    def convert(self, values: tf.Tensor) -> tf.Tensor:
        return (tf.cast(values, tf.float32) - self.subtractor) / self.divisor

    def get_config(self) -> dict[str, Any]:
        given = {"subtractor": self.subtractor, "divisor": self.divisor}
        return {**super().get_config(), **given}


@_register
class RoundIdentity(_Elementwise):
    """A value rounded, or ``default_value`` if it is not in [0, num_buckets)."""

    def __init__(self, num_buckets: int, default_value: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_buckets = num_buckets
        self.default_value = default_value

    def convert(self, values: tf.Tensor) -> tf.Tensor:
        return within(tf.round(values), self.num_buckets, self.default_value)

    def get_config(self) -> dict[str, Any]:
        given = {"num_buckets": self.num_buckets, "default_value": self.default_value}
        return {**super().get_config(), **given}


@_register
class ToNumber(_Elementwise):
    """Strings as numbers; an empty string is ``default_value``."""

    def __init__(self, out_type: Any, default_value: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.out_type = tf.as_dtype(out_type)
        if not (self.out_type.is_integer or self.out_type.is_floating):
            raise ValueError(f"{self.out_type.name} is not a dtype of numbers")
        self.default_value = default_value

    def convert(self, values: tf.Tensor) -> tf.Tensor:
        if values.dtype != tf.string:
            return tf.cast(values, self.out_type)
        filled = tf.where(tf.equal(values, ""), str(self.default_value), values)
        return tf.strings.to_number(filled, self.out_type)

    def get_config(self) -> dict[str, Any]:
        given = {"out_type": self.out_type.name, "default_value": self.default_value}
        return {**super().get_config(), **given}


@_register
class ConcatenateWithOffset(keras.layers.Layer):
    """Joins tensors of ids after it has added ``offsets[i]`` to the i-th."""

    def __init__(self, offsets: Sequence[int] | None, axis: int = -1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.offsets = None if offsets is None else list(offsets)
        self.axis = axis

    def call(self, inputs: Any) -> Any:
        if not isinstance(inputs, list | tuple):
            return inputs
        if self.offsets is not None and len(self.offsets) != len(inputs):
            raise ValueError(f"there are {len(self.offsets)} offsets for {len(inputs)} tensors")
        offsets = self.offsets or [0] * len(inputs)
        moved = [on_values(partial(_add, by), t) for t, by in zip(inputs, offsets, strict=True)]
        if isinstance(moved[0], tf.SparseTensor):
            return tf.sparse.concat(self.axis, moved)
        return tf.concat(moved, self.axis)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "offsets": self.offsets, "axis": self.axis}


@_register
class SparseEmbedding(keras.layers.Layer):
    """The rows of an example's ids, combined; in a dense tensor, 0 stands for no id."""

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        embeddings_initializer: Any = "uniform",
        combiner: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if combiner not in ("sum", "mean", "sqrtn"):
            raise ValueError(f"combiner must be sum, mean or sqrtn, not {combiner!r}")
        self.input_dim = input_dim
        self.output_dim = output_dim
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        self.combiner = combiner

    def build(self, input_shape: Any = None) -> None:
        self.embeddings = self.add_weight(
            shape=(self.input_dim, self.output_dim),
            initializer=self.embeddings_initializer,
            name="embeddings",
        )

    def call(self, inputs: Any) -> Any:
        ids = on_values(lambda values: tf.cast(values, tf.int64), inputs)
        if not isinstance(ids, tf.SparseTensor):
            ids = sparse(ids, 0)
        rows = tf.nn.safe_embedding_lookup_sparse(
            tf.convert_to_tensor(self.embeddings), ids, combiner=self.combiner
        )
        rows.set_shape([inputs.shape[0], self.output_dim])
        return rows

    def compute_output_spec(self, inputs: Any) -> Any:
        return keras.KerasTensor((inputs.shape[0], self.output_dim), self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        initializer = keras.initializers.serialize(self.embeddings_initializer)
        return {
            **super().get_config(),
            "input_dim": self.input_dim,
            "output_dim": self.output_dim,
            "embeddings_initializer": initializer,
            "combiner": self.combiner,
        }


@_register
class ToSparse(keras.layers.Layer):
    """A sparse tensor without the cells that are ``ignore_value``.

    Without one, empty strings, -1 of integers and 0.0 of floating numbers are left out.
    """

    def __init__(self, ignore_value: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.ignore_value = ignore_value

    def call(self, inputs: Any) -> Any:
        if isinstance(inputs, tf.SparseTensor):
            return inputs
        ignored = missing_value(inputs.dtype) if self.ignore_value is None else self.ignore_value
        return sparse(inputs, 0.0 if ignored is None else ignored)

    def compute_output_spec(self, inputs: Any) -> Any:
        return keras.KerasTensor(inputs.shape, inputs.dtype, sparse=True)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "ignore_value": self.ignore_value}


@_register
class ToRagged(keras.layers.Layer):
    """A ragged tensor without the cells that are ``ignore_value``.

    Without one, empty strings and -1 of integers are left out.
    """

    def __init__(self, sep: str = ",", ignore_value: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.sep = sep
        self.ignore_value = ignore_value

    def call(self, inputs: Any) -> Any:
        if not isinstance(inputs, tf.RaggedTensor):
            inputs = tf.RaggedTensor.from_tensor(inputs)
        ignored = missing_value(inputs.dtype) if self.ignore_value is None else self.ignore_value
        if ignored is None:
            return inputs
        return tf.ragged.boolean_mask(inputs, tf.not_equal(inputs, tf.cast(ignored, inputs.dtype)))

    def compute_output_spec(self, inputs: Any) -> Any:
        return keras.KerasTensor((inputs.shape[0], None), inputs.dtype, ragged=True)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "sep": self.sep, "ignore_value": self.ignore_value}


def _add(offset: int, values: tf.Tensor) -> tf.Tensor:
    return values + tf.cast(offset, values.dtype)


class VocabularyLookup:
    """Finds the place of values in a vocabulary.

    Args:
        vocabulary: strings or integers, each once.
        others: number of places after the vocabulary, for the hashes of all other values; with 0
            these get -1.
    """

    def __init__(self, vocabulary: Sequence[Any], others: int) -> None:
        of_strings = isinstance(vocabulary[0], str | bytes)
        kind = keras.layers.StringLookup if of_strings else keras.layers.IntegerLookup
        self._lookup = kind(vocabulary=list(vocabulary), num_oov_indices=1)
        self._size = len(vocabulary)
        self._others = others

    def __call__(self, values: tf.Tensor) -> tf.Tensor:
        found = tf.cast(self._lookup(values), tf.int64) - 1
        if not self._others:
            return found
        return tf.where(found < 0, self._size + hash_bucket(values, self._others), found)


def read_vocabulary(vocabulary: Sequence[Any] | str | None, size: int | None = None) -> list[Any]:
    """Return the values of a vocabulary, or the first ``size`` lines of its file.

    Raises:
        ValueError: it is empty, or has a value twice.
    """
    if isinstance(vocabulary, str):
        with tf.io.gfile.GFile(vocabulary) as file:
            vocabulary = [line.strip() for line in file.read().splitlines()][:size]
    values = list(vocabulary or ())
    if not values or len(set(values)) != len(values):
        raise ValueError("a vocabulary needs at least one value, and no value twice")
    return values


def hash_bucket(values: tf.Tensor, buckets: int) -> tf.Tensor:
    """Return the hash of the values' text modulo ``buckets``."""
    text = values if values.dtype == tf.string else tf.strings.as_string(values)
    return tf.strings.to_hash_bucket_fast(text, buckets)


def within(values: tf.Tensor, limit: int, default: int) -> tf.Tensor:
    """Return values in [0, limit) as int64, and ``default`` for all others."""
    numbers = tf.cast(values, tf.int64)
    inside = (numbers >= 0) & (numbers < limit)
    return tf.where(inside, numbers, tf.cast(default, tf.int64))


def missing_value(dtype: Any) -> Any:
    """Return the value that stands for no value: an empty string, -1, or None for floats."""
    dtype = tf.as_dtype(dtype)
    return "" if dtype == tf.string else -1 if dtype.is_integer else None


def sparse(dense: tf.Tensor, missing: Any) -> tf.SparseTensor:
    """Return a sparse tensor of the cells that are not ``missing``."""
    indices = tf.where(tf.not_equal(dense, tf.cast(missing, dense.dtype)))
    return tf.SparseTensor(
        indices, tf.gather_nd(dense, indices), tf.shape(dense, out_type=tf.int64)
    )
