"""Models, arrays and tables in memory are no values of options, and the error says what is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from edl.core.options import Verb
from edl.core.options.value_types import Texts
from edl.core.options.values import unknown


class Table:
    """A table that yields the names of its columns, as pandas' does."""

    def __iter__(self) -> Iterator[str]:
        return iter(["a", "b"])

    def to_csv(self, path: str) -> None:
        """Write the table."""


@pytest.mark.parametrize("data", [(np.zeros((3, 2)), np.zeros(3)), np.zeros((3, 2)), Table()])
def test_data_in_memory_must_be_written_to_a_file(data: object) -> None:
    with pytest.raises(ValueError, match=r"write values into a file, .*recordio\.Writer"):
        Texts().read(data)


def test_a_model_in_memory_is_no_option() -> None:
    problem = unknown("model", ["model_zoo"], "train(model=...)", Verb.TRAIN)
    assert "--model-zoo and the file" in problem.remedy
