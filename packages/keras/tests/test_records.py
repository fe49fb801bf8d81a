"""Arrays as records, as a model file reads them again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from conftest import LoadZoo

import recordio
from edl.plugins.errors import Problem
from edl_keras.fit_data import read_data
from edl_keras.model_file import write_zoo
from elasticdl import Mode

ARRAYS = [
    np.arange(10, dtype=np.float64).reshape(5, 2),
    np.arange(5, dtype=np.float16),
    np.arange(5, dtype=np.int32) - 2,
    np.arange(5 * 24, dtype=np.uint8).reshape(5, 4, 6),
    np.arange(5 * 20).reshape(5, 20) % 3 == 0,
    np.array(["a", "bb", "", "ü", "e"]),
    np.array([["a", "b"]] * 5, dtype=object),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{array.shape}")
@pytest.mark.parametrize("nested", ["alone", "dict", "tuple"])
def test_what_is_written_is_read_again(
    array: Any, nested: str, tmp_path: Path, load_zoo: LoadZoo
) -> None:
    import tensorflow as tf

    x = {"alone": array, "dict": {"p": array, "q": ARRAYS[0]}, "tuple": (ARRAYS[0], array)}[nested]
    data = read_data(x, np.arange(5.0), np.ones(5))
    layout = data.layout()
    data.write(tmp_path / "a.recordio", layout, [3, 1])
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    values = {"batch_size": 2, "training_metrics": None}
    write_zoo(tmp_path / "zoo", model, np.zeros((1, 2)), layout, [], values)
    file = load_zoo(tmp_path / "zoo")
    records = list(recordio.open_source(str(tmp_path / "a.recordio")).read(0, 9))
    dataset = tf.data.Dataset.from_tensor_slices(records)
    ((found, y, weights),) = file.dataset_fn(dataset, Mode.TRAINING).as_numpy_iterator()
    one = {"alone": lambda: found, "dict": lambda: found["p"], "tuple": lambda: found[1]}[nested]()
    expected = array[[3, 1]]
    if expected.dtype.kind in "OU":
        expected = np.vectorize(str.encode, otypes=[object])(expected)
    np.testing.assert_array_equal(one, expected)
    assert one.dtype == ("float32" if array.dtype == "float64" else expected.dtype)
    np.testing.assert_array_equal(y, [3, 1])
    np.testing.assert_array_equal(weights, [1, 1])
    (alone,) = file.dataset_fn(dataset, Mode.PREDICTION).as_numpy_iterator()
    assert isinstance(alone, type(found))


@pytest.mark.parametrize(
    ("array", "what"),
    [
        (np.array(["2020-01-01"], "M8[D]"), "has the dtype datetime64"),
        (np.array(["a", None], object), r"x has NoneType \(None\) among its values"),
        (np.array([1 << 63], np.uint64), "integers above"),
        (np.array([1j]), "complex"),
    ],
)
def test_values_that_records_cannot_hold_are_refused(array: Any, what: str) -> None:
    with pytest.raises(Problem, match=what) as caught:
        read_data(array).layout()
    assert caught.value.where == "fit(x=...)"
