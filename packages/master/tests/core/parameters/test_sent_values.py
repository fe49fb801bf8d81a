"""Values that workers send in replicated training wait for the command to use them."""

from __future__ import annotations

import numpy as np
import pytest

from edl_master.core.identifiers import Version, WorkerId
from edl_master.core.parameters.commands import CommitInitialValues, ReplaceValues
from edl_master.core.parameters.layout import Layout, Variable
from edl_master.core.parameters.modes import Replicated
from edl_master.core.parameters.optimizers import parse_optimizer
from edl_master.core.parameters.payload import PayloadError
from edl_master.core.parameters.shard import Shard
from edl_master.core.parameters.store import ParameterStore

A = WorkerId(0)
SIZE = 3


def values_of(number: float) -> memoryview:
    return np.full(SIZE, number, np.float32).view(np.uint8).data


@pytest.fixture
def shard() -> Shard:
    layout = Layout((Variable("w", (SIZE,), "float32", True),), ())
    optimizer = parse_optimizer({"class_name": "SGD", "config": {}})
    shard = Shard(ParameterStore(layout, optimizer, Replicated()))
    shard.propose(A, values_of(0.0))
    shard.apply(CommitInitialValues(A))
    return shard


def read(shard: Shard) -> list[float]:
    found = np.empty(SIZE, np.float32)
    shard.store.read_parameters(found.view(np.uint8).data)
    return [float(number) for number in found]


def test_values_are_those_of_the_version_that_the_command_names(shard: Shard) -> None:
    # A call whose answer was lost may still be at work when the next one begins.
    shard.hold_values(A, Version(5), values_of(5.0))
    shard.hold_values(A, Version(9), values_of(9.0))
    shard.apply(ReplaceValues(A, Version(5)))
    assert read(shard) == [5.0] * SIZE
    shard.drop_values(A, Version(5))

    shard.apply(ReplaceValues(A, Version(9)))
    assert (read(shard), shard.store.version) == ([9.0] * SIZE, 9)


def test_values_of_another_size_are_refused(shard: Shard) -> None:
    with pytest.raises(PayloadError):
        shard.hold_values(A, Version(1), memoryview(bytes(4)))
