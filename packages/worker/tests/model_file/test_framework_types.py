"""Objects of frameworks, told by the names of their classes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from edl_worker.model_file.framework_types import (
    derives_from,
    dtype_name,
    is_model_class,
    is_tensorflow_error,
    leaves,
    map_leaves,
)


class Pair(NamedTuple):
    one: int
    other: int


def class_of(module: str, name: str, *bases: type) -> type:
    return type(name, bases, {"__module__": module})


def test_a_class_is_known_by_what_it_inherits_from() -> None:
    model = class_of("keras.src.models.model", "Model")
    assert is_model_class(class_of("mine", "Net", model))
    assert not is_model_class(class_of("keras_of_mine", "Model"))
    assert not is_model_class(class_of("mine", "Model"))
    assert not derives_from(model, "tensorflow", "Model")


def test_an_error_of_tensorflow_is_known_without_tensorflow() -> None:
    base = class_of("tensorflow.python.framework.errors_impl", "OpError", Exception)
    error = class_of(base.__module__, "InvalidArgumentError", base)("bad shape")
    assert is_tensorflow_error(error)
    assert is_tensorflow_error(error, "InvalidArgumentError")
    assert not is_tensorflow_error(error, "ResourceExhaustedError")
    assert not is_tensorflow_error(ValueError("bad shape"))


def test_errors_of_the_installed_tensorflow_are_known() -> None:
    errors = pytest.importorskip("tensorflow").errors
    for name in ("InvalidArgumentError", "UnimplementedError", "ResourceExhaustedError"):
        assert is_tensorflow_error(getattr(errors, name)(None, None, "it"), name)


def test_nests_keep_their_form() -> None:
    nest = {"a": [1, (2, None)], "b": Pair(3, 4)}
    assert list(leaves(nest)) == [1, 2, None, 3, 4]
    doubled = map_leaves(lambda part: None if part is None else 2 * part, nest)
    assert doubled == {"a": [2, (4, None)], "b": Pair(6, 8)}
    assert isinstance(doubled["b"], Pair)


def test_the_name_of_a_dtype_is_empty_without_one() -> None:
    assert dtype_name(np.zeros(2, np.float32)) == "float32"
    assert dtype_name([1, 2]) == ""
