"""Tensors travel without loss, and a message that lies is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from edl_proto import tensor
from edl_proto.v1 import task_pb2

numbers = hnp.arrays(
    st.sampled_from([np.bool_, np.int8, np.uint32, np.int64, np.float16, np.float32, np.float64]),
    hnp.array_shapes(min_dims=0, min_side=0, max_side=4),
)


@settings(deadline=None)
@given(numbers)
def test_round_trip(array: np.ndarray[Any, Any]) -> None:
    back = tensor.decode(tensor.encode(array))
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.tobytes() == array.tobytes()
    assert back.flags.writeable


def test_big_endian_and_strided_arrays_travel_by_value() -> None:
    array = np.arange(12, dtype=">i4").reshape(3, 4)[:, ::2]
    assert np.array_equal(tensor.decode(tensor.encode(array)), array)


@pytest.mark.parametrize(
    "message",
    [
        task_pb2.Tensor(dtype="float32", shape=[3], content=b"1234"),
        task_pb2.Tensor(dtype="float32", shape=[-1], content=b"1234"),
        task_pb2.Tensor(dtype="object", shape=[1], content=b"12345678"),
        task_pb2.Tensor(dtype="float64", shape=[2**62, 2], content=b""),
    ],
)
def test_a_message_that_lies_is_refused(message: task_pb2.Tensor) -> None:
    with pytest.raises(ValueError, match="tensor"):
        tensor.decode(message)


def test_objects_cannot_travel() -> None:
    with pytest.raises(ValueError, match="object"):
        tensor.encode(np.array([b"a", None], dtype=object))
