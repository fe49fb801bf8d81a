"""Small planes for the tests, and a worker's view of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edl_master.core.identifiers import TaskKey, TaskType, Token, Version, WorkerId
from edl_master.core.parameters.arithmetic import Executor
from edl_master.core.parameters.commands import (
    Command,
    CommitInitialValues,
    CommitPush,
    FinishTraining,
    FlushAccumulated,
    FreezeVersion,
    ReleaseVersion,
)
from edl_master.core.parameters.layout import Array, Layout, Variable
from edl_master.core.parameters.modes import UpdateMode
from edl_master.core.parameters.optimizers import Optimizer, parse_optimizer
from edl_master.core.parameters.payload import Payload
from edl_master.core.parameters.permits import PermitAnswer
from edl_master.core.parameters.push import Gradient, PushClaim, PushOutcome, PushResult
from edl_master.core.parameters.push_ledger import PushLedger
from edl_master.core.parameters.shard import Shard
from edl_master.core.parameters.snapshot import Snapshot
from edl_master.core.parameters.store import ParameterStore
from edl_master.core.parameters.table_spec import Distribution, Initial, TableSpec
from edl_master.core.parameters.tables.payloads import RowIds, RowPayload


def sgd(learning_rate: float = 1.0, **config: Any) -> Optimizer:
    return parse_optimizer(
        {"class_name": "SGD", "config": {"learning_rate": learning_rate, **config}}
    )


def training_task(number: int, epoch: int = 0) -> TaskKey:
    return TaskKey(TaskType.TRAINING, epoch, number)


A, B, C = (training_task(number) for number in range(3))


@dataclass(frozen=True, slots=True)
class GradientPush:
    """A claim together with its gradient, as a worker sends both."""

    claim: PushClaim
    gradient: Gradient

    @property
    def task(self) -> TaskKey:
        return self.claim.task

    @property
    def minibatch(self) -> int:
        return self.claim.minibatch


def a_push(
    task: TaskKey,
    token: Token,
    minibatch: int,
    records: int,
    base_version: Version,
    gradient: Payload,
    state_delta: Payload | None = None,
    rows: tuple[RowPayload, ...] = (),
    minibatches: int = 1,
) -> GradientPush:
    claim = PushClaim(task, token, minibatch, records, base_version, minibatches)
    return GradientPush(claim, Gradient(gradient, state_delta, join_payloads(rows)))


class LedgerWithCommands:
    """A ledger whose decisions are appended as commands, as the coordinator does it."""

    def __init__(
        self, mode: UpdateMode, optimizer: Optimizer, append: Callable[[Command], None]
    ) -> None:
        self.ledger = PushLedger(mode, keeps_average=optimizer.keeps_average)
        self._append = append

    @property
    def version(self) -> Version:
        return self.ledger.version

    def commit_initial_values(self, worker: WorkerId) -> bool:
        accepted = self.ledger.initialize()
        if accepted:
            self._append(CommitInitialValues(worker))
        return accepted

    def commit(
        self, claim: PushClaim, not_finite: str = "", squares: tuple[float, ...] = ()
    ) -> PushResult:
        result = self.ledger.commit(claim, not_finite)
        if result.outcome is PushOutcome.APPLIED:
            self._append(
                CommitPush(
                    claim.task,
                    claim.token,
                    claim.minibatch,
                    claim.records,
                    result.version,
                    claim.minibatches,
                    squares,
                    claim.worker,
                )
            )
        return result

    def flush(self) -> bool:
        flushed = self.ledger.flush()
        if flushed:
            self._append(FlushAccumulated(self.ledger.version))
        return flushed

    def finish(self) -> bool:
        flushed = self.flush()
        finished = self.ledger.finish()
        if finished:
            self._append(FinishTraining(self.ledger.version))
        return flushed or finished

    def freeze(self, name: str) -> Version:
        version = self.ledger.freeze(name)
        self._append(FreezeVersion(name))
        return version

    def release(self, name: str) -> bool:
        released = self.ledger.release(name)
        self._append(ReleaseVersion(name))
        return released


class ParameterPlane(LedgerWithCommands):
    """A ledger and one shard that applies its commands at once: the plane without any lock."""

    def __init__(
        self,
        layout: Layout,
        optimizer: Optimizer,
        mode: UpdateMode,
        *,
        executor: Executor | None = None,
        store: ParameterStore | None = None,
    ) -> None:
        self.store = store or ParameterStore(layout, optimizer, mode, executor=executor)
        self.shard = Shard(self.store)
        super().__init__(mode, optimizer, self.shard.apply)
        self.layout, self.mode, self.optimizer = self.store.layout, mode, optimizer
        self.read_parameters = self.store.read_parameters
        self.put_rows, self.rows_nbytes = self.store.put_rows, self.store.rows_nbytes
        self.read_rows, self.scan_rows = self.store.read_rows, self.store.scan_rows
        self.warm_up = self.store.warm_up
        self.grant, self.revoke = self.ledger.grant, self.ledger.revoke
        self.close = self.ledger.close

    @property
    def initialized(self) -> bool:
        assert self.ledger.initialized == self.store.initialized
        return self.ledger.initialized

    @property
    def generation(self) -> int:
        return self.ledger.generation

    def applied_counts(self) -> dict[TaskKey, int]:
        """Minibatches of each open task."""
        return {task: count.minibatches for task, count in self.ledger.applied_counts().items()}

    def request_permit(self, task: TaskKey, token: Token) -> PermitAnswer:
        return self.ledger.request_permit(task, token)

    def read_frozen(self, name: str, out: Payload) -> Version:
        self.store.read_parameters(out, name)
        return self.store.frozen_version(name)

    def initialize(self, values: Payload) -> bool:
        self.shard.propose(WorkerId(0), values)
        return self.commit_initial_values(WorkerId(0))

    def push(self, push: GradientPush) -> PushResult:
        """Push in the order of ``edl_master.parameters.plane``."""
        prepared = self.store.prepare(push.gradient)
        rejected = self.ledger.judge(push.claim, prepared.not_finite)
        if rejected is not None:
            return rejected
        self.store.make_ready(prepared)
        self.shard.prepare(WorkerId(0), push.claim.key, prepared)
        result = self.commit(push.claim, prepared.not_finite)
        assert self.store.version == self.ledger.version
        return result

    def learning_rate(self) -> float:
        """The rate of the next update."""
        return float(self.optimizer.rate_at(self.ledger.iterations, self.ledger.learning_rate))

    def snapshot(self) -> Snapshot:
        taken = self.store.snapshot()
        return Snapshot({**taken.meta, **self.ledger.describe()}, taken.arrays)

    @classmethod
    def restore(
        cls,
        snapshot: Snapshot,
        optimizer: Optimizer,
        mode: UpdateMode,
        *,
        layout: Layout | None = None,
        executor: Executor | None = None,
    ) -> ParameterPlane:
        store = ParameterStore.restore(snapshot, optimizer, mode, layout=layout, executor=executor)
        plane = cls(store.layout, optimizer, mode, store=store)
        plane.ledger.restore(snapshot.meta)
        return plane

    def check_invariants(self) -> None:
        self.ledger.check_invariants()
        self.store.check_invariants()
        assert self.store.version == self.ledger.version


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
    ids = np.asarray(ids, np.int64)
    return RowPayload((table,), (ids.size,), ids, np.asarray(values, np.float32))


def join_payloads(payloads: Sequence[RowPayload]) -> RowPayload | None:
    """Return the payloads as one; None if there are none."""
    if not payloads:
        return None
    return RowPayload(
        sum((one.tables for one in payloads), ()),
        sum((one.counts for one in payloads), ()),
        b"".join(bytes(one.ids) for one in payloads),
        b"".join(bytes(one.values) for one in payloads),
    )


def row_ids(ids: Any, table: int = 0) -> RowIds:
    ids = np.asarray(ids, np.int64)
    return RowIds((table,), (ids.size,), ids)


def rows_of(plane: ParameterPlane, ids: Any, table: int = 0, frozen: str = "") -> Array:
    """Rows of a table."""
    wanted = row_ids(ids, table)
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
) -> PushResult:
    """Push a gradient computed from the present version, or from ``base``."""
    return plane.push(
        a_push(
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


ONE = Token(1)
TWO = Token(2)
THREE = Token(3)
FOUR = Token(4)


def assert_same_arrays(one: Snapshot, other: Snapshot) -> None:
    assert set(one.arrays) == set(other.arrays)
    for name, array in one.arrays.items():
        np.testing.assert_array_equal(array, other.arrays[name], err_msg=name)


def assert_same_state(one: Snapshot, other: Snapshot) -> None:
    assert_same_arrays(one, other)
    assert one.meta == other.meta
