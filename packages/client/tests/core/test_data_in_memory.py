"""Models, arrays and tables in memory are no values of options, and the error says what is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from edl.core.options import BY_NAME, Given, Verb
from edl.core.options.value_types import Texts
from edl.core.options.values import read_value, unknown
from edl.core.problem import Problem


class Table:
    """A table that yields the names of its columns, as pandas' does."""

    def __iter__(self) -> Iterator[str]:
        return iter(["a", "b"])

    def to_csv(self, path: str) -> None:
        """Write the table."""


@pytest.mark.parametrize("data", [(np.zeros((3, 2)), np.zeros(3)), np.zeros((3, 2)), Table()])
def test_data_in_memory_must_be_written_to_a_file(data: object) -> None:
    with pytest.raises(
        ValueError,
        match=r"elasticdl.fit takes arrays .* write values into a file, .*recordio\.Writer",
    ):
        Texts().read(data)


def test_a_model_in_memory_is_no_option() -> None:
    problem = unknown("model", ["model_zoo"], "train(model=...)", Verb.TRAIN)
    assert "--model-zoo and the file" in problem.remedy
    assert "elasticdl.fit(model, x, y)" in problem.remedy


def test_an_object_of_keras_is_for_fit() -> None:
    with pytest.raises(Problem, match="expected text, not Table") as caught:
        read_value(BY_NAME["loss"], Given(Table(), "train(loss=...)"))
    assert caught.value.remedy.startswith("elasticdl.fit(model, x, y) trains a compiled model")
