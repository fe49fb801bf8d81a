"""Small planes for the tests, and a worker's view of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from edl_master.core.identifiers import TaskKey, TaskType, Token, Version
from edl_master.core.parameters.exchange import GradientPush, PushOutcome
from edl_master.core.parameters.layout import Array, Layout, Variable
from edl_master.core.parameters.modes import UpdateMode
from edl_master.core.parameters.optimizers import Optimizer, parse_optimizer
from edl_master.core.parameters.plane import ParameterPlane
from edl_master.core.parameters.tables.payloads import RowIds, RowPayload
from edl_master.core.parameters.tables.spec import Distribution, Initial, TableSpec


def sgd(learning_rate: float = 1.0, **config: Any) -> Optimizer:
    return parse_optimizer(
        {"class_name": "SGD", "config": {"learning_rate": learning_rate, **config}}
    )


def training_task(number: int, epoch: int = 0) -> TaskKey:
    return TaskKey(TaskType.TRAINING, epoch, number)


A, B, C = (training_task(number) for number in range(3))


def small_plane(
    mode: UpdateMode,
    optimizer: Optimizer | None = None,
    *,
    trainable: int = 2,
    state: int = 1,
    tables: tuple[TableSpec, ...] = (),
) -> ParameterPlane:
    """A plane with ``trainable`` weights ``w`` and ``state`` moving averages, all zero."""
    variables = [Variable("w", (trainable,), "float32", True)]
    if state:
        variables.append(Variable("moving_mean", (state,), "float32", False))
    plane = ParameterPlane(Layout(variables, tables), optimizer or sgd(), mode)
    assert plane.initialize(bytes(plane.layout.parameter_nbytes))
    return plane


def zero_table(name: str = "t", dim: int = 1, **limits: int) -> TableSpec:
    return TableSpec(name, dim, Initial(Distribution.CONSTANT), 0, **limits)


def row_payload(ids: Any, values: Any, table: int = 0) -> RowPayload:
    return RowPayload(table, np.asarray(ids, np.int64), np.asarray(values, np.float32))


def rows_of(plane: ParameterPlane, ids: Any, table: int = 0, frozen: str = "") -> Array:
    """Rows of a table."""
    wanted = [RowIds(table, np.asarray(ids, np.int64))]
    out = bytearray(plane.rows_nbytes(wanted))
    plane.read_rows(wanted, memoryview(out), frozen)
    return np.frombuffer(out, np.float32).reshape(len(ids), plane.layout.tables[table].dim)


def values_of(plane: ParameterPlane) -> Array:
    """All values of a plane of float32 variables."""
    out = np.empty(plane.layout.parameter_nbytes // 4, np.float32)
    plane.read_parameters(out)
    return out


def push(
    plane: ParameterPlane,
    task: TaskKey,
    token: int,
    minibatch: int,
    gradient: Any,
    *,
    records: int = 1,
    base: int | None = None,
    state: Any = None,
    rows: tuple[RowPayload, ...] = (),
    minibatches: int = 1,
) -> PushOutcome:
    """Push a gradient computed from the present version, or from ``base``."""
    return plane.push(
        GradientPush(
            task,
            Token(token),
            minibatch,
            records,
            plane.version if base is None else Version(base),
            np.asarray(gradient, np.float32),
            None if state is None else np.asarray(state, np.float32),
            rows,
            minibatches,
        )
    )
