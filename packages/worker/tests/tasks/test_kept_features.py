"""What a prediction job writes besides the outputs of the model as they are."""

from __future__ import annotations

import numpy as np
import pytest

import recordio.example
from edl_proto.errors import EdlError, ErrorCode
from edl_worker.tasks.kept_features import read_kept_features
from edl_worker.tasks.postprocess import postprocess, warn_of_activations
from edl_worker.tasks.task_errors import is_permanent


def test_cells_of_csv_are_kept_as_they_stand() -> None:
    block = [b'007,"a, b",1.50', b",caf\xe9,x"]
    kept = read_kept_features(lambda: iter([block]), ("id", "name", "x"), ("name", "id"))
    assert list(kept) == [{"name": b"a, b", "id": b"007"}, {"name": b"caf\xe9", "id": b""}]


def test_features_of_examples_may_be_missing() -> None:
    block = [recordio.example.encode({"id": b"a", "x": 1}), recordio.example.encode({"x": 2})]
    assert list(read_kept_features(lambda: iter([block]), (), ("id",))) == [{"id": [b"a"]}, {}]


def test_nothing_is_read_for_nothing() -> None:
    kept = read_kept_features(lambda: pytest.fail("read"), (), ())
    assert [next(kept), next(kept)] == [{}, {}]


def test_a_column_that_does_not_exist() -> None:
    with pytest.raises(EdlError, match="no column 'idd'"):
        read_kept_features(lambda: iter([]), ("id", "x"), ("idd",))


def test_a_record_that_is_no_example() -> None:
    with pytest.raises(EdlError, match=r"tf\.Example"):
        list(read_kept_features(lambda: iter([[b"\xff\xff"]]), (), ("id",)))


def test_functions_of_outputs() -> None:
    logits = np.array([[1.0, 2.0, 1000.0], [0.0, 0.0, -1000.0]], np.float32)
    assert postprocess("y", logits, "") is logits
    assert postprocess("y", logits, "argmax").tolist() == [2, 0]
    np.testing.assert_allclose(postprocess("y", logits, "softmax"), [[0, 0, 1], [0.5, 0.5, 0]])
    np.testing.assert_allclose(
        postprocess("y", np.array([0.0, -1000.0, 1000.0]), "sigmoid"), [0.5, 0, 1]
    )
    masks = np.zeros((2, 4, 5, 3))
    assert postprocess("y", masks, "argmax").shape == (2, 4, 5)


@pytest.mark.parametrize("function", ["softmax", "sigmoid"])
def test_probabilities_of_probabilities(function: str) -> None:
    (warning,) = warn_of_activations(function, ["", "softmax"])
    assert "as the model ends in a softmax" in warning
    assert warn_of_activations(function, ["linear", ""]) == ()
    assert warn_of_activations("argmax", ["softmax"]) == warn_of_activations("", ["softmax"]) == ()


@pytest.mark.parametrize(
    ("output", "function", "why"),
    [
        (np.zeros((4, 1)), "argmax", r"shape \(n, 1\), one value"),
        (np.zeros(4), "softmax", "one value"),
        (np.array([[b"a", b"b"]], object), "sigmoid", "dtype object"),
    ],
)
def test_outputs_that_a_function_says_nothing_about(
    output: np.ndarray, function: str, why: str
) -> None:
    with pytest.raises(EdlError, match=why) as refused:
        postprocess("y", output, function)
    # A client that reads this advises against resuming the job, which keeps its options.
    assert refused.value.code == ErrorCode.USAGE
    assert refused.value.where.startswith("--postprocess")
    assert is_permanent(refused.value), "no other worker has other options"
