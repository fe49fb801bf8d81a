"""Minibatches by an input function of records."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from example_data import example
from pipeline_examples import (
    RANDOM_RECORDS,
    RECORDS,
    load,
    numbers,
    rows,
    values,
)
from plain_loop import batches
from zoo_folder import ZooFolder

from edl_proto.errors import EdlError, ErrorCode


def test_each_minibatch_draws_different_random_numbers(zoo: ZooFolder) -> None:
    found = batches(load(zoo, RANDOM_RECORDS), rows(0, 48))
    noise = [
        tuple(round(value - number, 6) for value, number in zip(*pair, strict=True))
        for pair in zip(values(found), numbers(found), strict=True)
    ]
    assert len(set(noise)) == len(noise) == 3


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ("return {'x': records[0]['y']}, 1", ErrorCode.USER_CODE, "no feature 'y'; it has x"),
        ("return 1 / 0", ErrorCode.USER_CODE, "ZeroDivisionError"),
        ("return {'x': np.zeros((3, 1))}, np.zeros(3)", ErrorCode.SHAPE_MISMATCH, "got 10 records"),
        ("return {'x': np.zeros((10, 1))}, np.zeros(3)", ErrorCode.SHAPE_MISMATCH, "labels"),
        ("return {'x': [[1], [2, 3]]}, [1, 2]", ErrorCode.SHAPE_MISMATCH, "not a tensor"),
        ("return 1, 2, 3, 4", ErrorCode.MODEL_CONTRACT, "returned 4 values"),
        ("return np.zeros((10, 1))", ErrorCode.MODEL_CONTRACT, "returned ndarray"),
    ],
)
def test_an_input_function_that_breaks_the_contract(
    zoo: ZooFolder, body: str, code: int, said: str
) -> None:
    model_file = load(zoo, f"def input_fn(records):\n    {body}")
    with pytest.raises(EdlError) as caught:
        batches(model_file, rows(0, 10))
    assert caught.value.code == code
    assert said in caught.value.what
    assert f"{zoo.root}/mine.py:" in caught.value.where


def test_a_record_that_is_not_an_example(zoo: ZooFolder) -> None:
    with pytest.raises(EdlError) as caught:
        batches(load(zoo, RECORDS), [b"\xff\xff\xff"])
    assert caught.value.code == ErrorCode.DATA_DAMAGED
    assert "edl data convert" in caught.value.remedy


def test_values_of_a_record(zoo: ZooFolder) -> None:
    model_file = load(
        zoo,
        """
def input_fn(records, mode):
    (r,) = records
    assert mode == Mode.TRAINING
    assert r["word"] == b"w" and r["words"] == [b"a", b"b"]
    assert r["one"] == 7 and r["one"].dtype == np.int64 and r["one"].shape == ()
    assert r["floats"].tolist() == [0.5, 1.5] and r["floats"].dtype == np.float32
    return np.zeros((1, 1)), np.zeros(1)
""",
    )
    message = tf.train.Example.FromString(
        example(word=b"w", one=np.array([7]), floats=np.array([0.5, 1.5], np.float32))
    )
    message.features.feature["words"].bytes_list.value.extend([b"a", b"b"])
    assert len(batches(model_file, [message.SerializeToString()])) == 1


def test_rows_of_a_csv_file(zoo: ZooFolder) -> None:
    model_file = load(
        zoo,
        """
def input_fn(records):
    assert [r["name"] for r in records] == [b"Ann, Lee", b"1_000"]
    assert records[0]["age"].dtype == np.int64 and records[0]["pay"].dtype == np.float64
    return np.array([[r["pay"]] for r in records]), np.array([r["age"] for r in records])
""",
    )
    rows_ = [b'"Ann, Lee",31,1.5', b"1_000,42,-2e3"]
    (batch,) = batches(model_file, rows_, columns=["name", "age", "pay"])
    assert np.asarray(batch.features).reshape(-1).tolist() == [1.5, -2000.0]
    assert np.asarray(batch.labels).tolist() == [31, 42]


def test_a_csv_row_that_is_too_short(zoo: ZooFolder) -> None:
    with pytest.raises(EdlError) as caught:
        batches(load(zoo, RECORDS), [b"1,2"], columns=["x", "y", "z"])
    assert caught.value.code == ErrorCode.DATA_DAMAGED
    assert "2 fields, the header 3" in caught.value.what
