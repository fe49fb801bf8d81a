"""The initial content of a row, before any gradient: a function of seed, id and column.

The same function is in the master's kernels; a test compares the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

CONSTANT, UNIFORM, NORMAL, TRUNCATED_NORMAL = range(4)
"""As in ``EmbeddingTable.distribution``."""

_GOLDEN = 0x9E3779B97F4A7C15
_CUT = 0.9544997361036416  # of the standard normal distribution lies between -2 and 2
_TRUNCATED_DEVIATION = 0.87962566103423978  # of what lies there


@dataclass(frozen=True, slots=True)
class RowInitializer:
    """A new row is ``center + spread * x``, with ``x`` drawn from the distribution."""

    distribution: int
    center: float
    spread: float


def row_initializer(initializer: Any, dim: int, input_dim: int | None) -> RowInitializer:
    """Return the row initializer for a Keras initializer, whose seed is ignored.

    Args:
        initializer: a Keras initializer.
        dim: numbers of a row.
        input_dim: how many ids there will be, for initializers that scale by it (Glorot, He,
            LeCun); None: they scale as for one row alone.

    Raises:
        ValueError: rows cannot be made by it.
    """
    kinds = keras.initializers
    match initializer:
        case kinds.Zeros():
            return RowInitializer(CONSTANT, 0.0, 0.0)
        case kinds.Ones():
            return RowInitializer(CONSTANT, 1.0, 0.0)
        case kinds.Constant() if np.ndim(initializer.value) == 0:
            return RowInitializer(CONSTANT, float(initializer.value), 0.0)
        case kinds.RandomUniform():
            low, high = float(initializer.minval), float(initializer.maxval)
            return RowInitializer(UNIFORM, (low + high) / 2, (high - low) / 2)
        case kinds.RandomNormal():
            return RowInitializer(NORMAL, float(initializer.mean), float(initializer.stddev))
        case kinds.TruncatedNormal():
            return RowInitializer(
                TRUNCATED_NORMAL, float(initializer.mean), float(initializer.stddev)
            )
        case kinds.VarianceScaling():
            return _scale(initializer, dim, input_dim)
    raise ValueError(
        f"embeddings_initializer {type(initializer).__name__} cannot make rows one by one; use "
        "zeros, ones, a constant, random_uniform, random_normal, truncated_normal, or one of the "
        "glorot, he and lecun initializers"
    )


def _scale(initializer: Any, dim: int, input_dim: int | None) -> RowInitializer:
    fan_in, fan_out = (input_dim or dim), dim
    fan = {"fan_in": fan_in, "fan_out": fan_out}.get(initializer.mode, (fan_in + fan_out) / 2)
    variance = float(initializer.scale) / max(1.0, fan)
    match initializer.distribution:
        case "uniform":
            return RowInitializer(UNIFORM, 0.0, math.sqrt(3 * variance))
        case "truncated_normal":
            return RowInitializer(TRUNCATED_NORMAL, 0.0, math.sqrt(variance) / _TRUNCATED_DEVIATION)
        case _:
            return RowInitializer(NORMAL, 0.0, math.sqrt(variance))


def initial_rows(initial: RowInitializer, ids: tf.Tensor, dim: int, seed: tf.Tensor) -> tf.Tensor:
    """Return the initial rows of ids.

    Args:
        ids: int64, shape (n,).
        seed: int64 scalar; the 64 bits of the table's seed.

    Returns:
        float32 of shape (n, dim).
    """
    n = tf.shape(ids)[0]
    if initial.distribution == CONSTANT:
        return tf.fill([n, dim], np.float32(initial.center))
    key = mix(tf.bitwise.bitwise_xor(tf.bitcast(ids, tf.uint64), mix(tf.bitcast(seed, tf.uint64))))
    steps = [(_GOLDEN * (j + 1)) % (1 << 64) for j in range(dim)]
    columns = tf.constant(np.array(steps, np.uint64))
    bits = tf.bitwise.right_shift(mix(key[:, None] + columns[None]), np.uint64(11))
    x = (tf.cast(bits, tf.float64) + 0.5) * (2.0 / (1 << 53)) - 1.0
    if initial.distribution == NORMAL:
        x = math.sqrt(2.0) * tf.math.erfinv(x)
    elif initial.distribution == TRUNCATED_NORMAL:
        x = math.sqrt(2.0) * tf.math.erfinv(x * _CUT)
    return tf.cast(initial.center + initial.spread * x, tf.float32)


def mix(x: tf.Tensor) -> tf.Tensor:
    """Spread 64 bits over 64 bits, one to one: the last steps of SplitMix64 (Steele 2014)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = _fold(x, shift) * np.uint64(factor)
    return _fold(x, 31)


def _fold(x: tf.Tensor, shift: int) -> tf.Tensor:
    return tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, np.uint64(shift)))
