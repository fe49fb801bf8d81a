"""Quantization of float32 tensors to 16 bits for the wire, and back.

Quantized tensors leave and enter the graph as uint16, since numpy has no bfloat16.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from edl_worker.core.job import WirePrecision

_DTYPES = {WirePrecision.FLOAT16: tf.float16, WirePrecision.BFLOAT16: tf.bfloat16}


def quantize(
    tensors: Sequence[tf.Tensor], precision: WirePrecision
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Round float32 tensors to 16 bits, as uint16; keep other tensors.

    Returns:
        The tensors, and whether every rounded number is finite.
    """
    dtype = _DTYPES[precision]
    found, fit = [], [tf.constant(True)]
    for tensor in tensors:
        if tensor.dtype == tf.float32:
            half = tf.cast(tensor, dtype)
            fit.append(tf.reduce_all(tf.math.is_finite(half)))
            tensor = tf.bitcast(half, tf.uint16)
        found.append(tensor)
    return found, tf.reduce_all(fit)


def dequantize(bits: tf.Tensor, precision: WirePrecision) -> tf.Tensor:
    """Return quantized numbers as float32, which is exact."""
    return tf.cast(tf.bitcast(bits, _DTYPES[precision]), tf.float32)
