"""The codec between tensor messages and numpy arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from edl_proto.v1 import task_pb2

_DTYPES = frozenset(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)) | {
    "bool",
    "float16",
    "float32",
    "float64",
}


def encode(array: np.ndarray[Any, Any]) -> task_pb2.Tensor:
    """Encode an array of a plain numeric dtype.

    Raises:
        ValueError: the dtype is not one of numpy's numbers or bool.
    """
    if array.dtype.name not in _DTYPES:
        raise ValueError(f"a tensor of dtype {array.dtype.name} cannot be sent")
    # Not ascontiguousarray, which turns a scalar into an array of one element.
    array = np.asarray(array, order="C")
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return task_pb2.Tensor(dtype=array.dtype.name, shape=array.shape, content=little.tobytes())


def decode(tensor: task_pb2.Tensor) -> np.ndarray[Any, Any]:
    """Decode a message into an array that may be written to.

    Raises:
        ValueError: unknown dtype, or a content that does not fit the shape.
    """
    if tensor.dtype not in _DTYPES:
        raise ValueError(f"unknown tensor dtype {tensor.dtype!r}")
    dtype = np.dtype(tensor.dtype)
    shape = tuple(tensor.shape)
    if any(size < 0 for size in shape) or math.prod(shape) * dtype.itemsize != len(tensor.content):
        raise ValueError(
            f"a tensor of shape {shape} and dtype {tensor.dtype} "
            f"cannot have {len(tensor.content)} bytes"
        )
    return np.frombuffer(tensor.content, dtype=dtype.newbyteorder("<")).astype(dtype).reshape(shape)
