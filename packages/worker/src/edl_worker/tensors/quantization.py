"""Numbers of 16 bits on the wire, made from and into float32 by TensorFlow.

They leave and enter the graph as their bits: not everything takes bfloat16 for a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import tensorflow as tf

from edl_proto.v1 import job_pb2

Precision: TypeAlias = job_pb2.WirePrecision.ValueType

_DTYPES = {job_pb2.FLOAT16: tf.float16, job_pb2.BFLOAT16: tf.bfloat16}


def quantize(
    tensors: Sequence[tf.Tensor], precision: Precision
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """float32 tensors rounded to 16 bits, as uint16; others as they are.

    Returns:
        The tensors, and whether every number that was rounded is finite.
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


def dequantize(bits: tf.Tensor, precision: Precision) -> tf.Tensor:
    """Numbers of 16 bits, as uint16, as float32; exact."""
    return tf.cast(tf.bitcast(bits, _DTYPES[precision]), tf.float32)
