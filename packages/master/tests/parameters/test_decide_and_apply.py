"""Decisions never wait for updates, are applied in their order, and are never half applied."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from edl_master.adapters.buffer_pool import BufferPool
from edl_master.core.identifiers import AppliedCount, TaskKey, TaskType, Token, Version, WorkerId
from edl_master.core.parameters.layout import Array, Variable
from edl_master.core.parameters.modes import Async, Sync, UpdateMode
from edl_master.core.parameters.optimizers import Optimizer, parse_optimizer
from edl_master.core.parameters.push import Gradient, PushClaim, PushOutcome, PushResult
from edl_master.core.parameters.statistics import TableStatistics
from edl_master.core.parameters.store import ParameterStore
from edl_master.parameters.locked_shard import LockedShard, ReadRequest
from edl_master.parameters.plane import LocalParts, build_local

Failures = queue.SimpleQueue[tuple[Exception, threading.Thread]]

LONG_S = 200.0
SIZE = 5
VARIABLES = (Variable("w", (SIZE,), "float32", True),)
SGD = json.dumps({"class_name": "SGD", "config": {"learning_rate": 1.0}})


def task(number: int) -> TaskKey:
    return TaskKey(TaskType.TRAINING, 0, number)


@pytest.fixture
def failures() -> Failures:
    return queue.SimpleQueue()


@pytest.fixture
def local(failures: Failures) -> LocalParts:
    return ready(Async(), failures)


def ready(mode: UpdateMode, failures: Failures) -> LocalParts:
    def record_failure(error: Exception) -> None:
        failures.put((error, threading.current_thread()))

    local = build_local(
        BufferPool(),
        lambda *_: mode,
        on_failed=record_failure,
    )
    local.model.describe(VARIABLES, SGD, "sum")
    local.plane.initialize(WorkerId(0), memoryview(bytes(4 * SIZE)))
    local.coordinator.grant(task(0), Token(1))
    return local


def push(local: LocalParts, minibatch: int, token: int = 1, base: int | None = None) -> PushOutcome:
    version = Version(minibatch if base is None else base)
    claim = PushClaim(task(0), Token(token), minibatch, 1, version)
    gradient = Gradient(memoryview(np.full(SIZE, -1, np.float32).tobytes()))
    with local.plane.push(WorkerId(0), claim, gradient) as pushed:
        return pushed.result.outcome


def values(local: LocalParts, frozen: str = "") -> Array:
    with local.plane.pull(ReadRequest(frozen=frozen)) as pulled:
        return np.frombuffer(pulled.reading.values, np.float32).copy()


@contextmanager
def busy(local: LocalParts) -> Iterator[None]:
    """A store that is busy, as while a large update is being applied."""
    working, done = threading.Event(), threading.Event()

    def work() -> None:
        with local.shard.acquire():
            working.set()
            done.wait(LONG_S)

    thread = threading.Thread(target=work)
    thread.start()
    assert working.wait(LONG_S)
    yield
    assert thread.is_alive(), "nothing waited for the update"
    done.set()
    thread.join()


def test_no_decision_of_the_job_waits_for_an_update(local: LocalParts) -> None:
    coordinator = local.coordinator
    assert push(local, 0) is PushOutcome.APPLIED
    with busy(local):
        assert coordinator.grant(task(1), Token(2)) == 0
        coordinator.revoke(task(1), Token(2))
        coordinator.close(task(1))
        coordinator.flush()
        assert coordinator.freeze("then") == 1
        assert coordinator.snapshot("") is not None
        coordinator.finish()
        assert coordinator.count_applied(task(0)) == AppliedCount(1, 1)
        assert coordinator.tables() == TableStatistics()
    assert (values(local, "then") == 1).all()


def test_what_was_decided_before_a_push_is_applied_before_it(local: LocalParts) -> None:
    assert push(local, 0) is PushOutcome.APPLIED
    with busy(local):
        local.coordinator.freeze("then")
        pending = local.coordinator.snapshot("")
    assert push(local, 1) is PushOutcome.APPLIED
    assert (values(local, "then") == 1).all()
    assert (values(local) == 2).all()
    assert pending is not None
    assert pending.version == 1
    snapshot = pending.get()
    assert snapshot.meta["version"] == 1
    np.testing.assert_array_equal(snapshot.arrays["values/trainable/float32"], np.ones(SIZE))
    restored = ParameterStore.restore(snapshot, sgd(), Async(), layout=local.shard.layout)
    assert restored.version == 1


def sgd() -> Optimizer:
    return parse_optimizer(json.loads(SGD))


def test_a_snapshot_without_a_waiter_holds_no_values(local: LocalParts) -> None:
    pending = local.coordinator.snapshot("")
    del pending
    assert push(local, 0) is PushOutcome.APPLIED
    again = local.coordinator.snapshot("")
    assert again is not None
    assert again.get().meta["version"] == 1


def test_a_holder_whose_lease_is_lost_during_an_update_is_refused(local: LocalParts) -> None:
    """The count that the next holder is granted includes the push that is being applied."""
    results: list[PushOutcome] = []
    with busy(local):
        pushing = threading.Thread(target=lambda: results.append(push(local, 0)))
        pushing.start()
        # The push waits for the store and is not decided yet: the lease is lost before it.
        assert local.coordinator.grant(task(0), Token(2)) == 0
    pushing.join()
    assert results == [PushOutcome.REFUSED]
    assert push(local, 0, token=2) is PushOutcome.APPLIED
    assert (values(local) == 1).all()


def test_a_failed_update_fails_the_job_and_nothing_is_served_afterwards(
    local: LocalParts, failures: Failures, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise MemoryError("no memory for an update")

    monkeypatch.setattr(ParameterStore, "apply", fail)
    with pytest.raises(MemoryError):
        push(local, 0)
    error, thread = failures.get(timeout=LONG_S)
    assert str(error) == "no memory for an update"
    assert thread is not threading.current_thread(), "it held the lock of the store"
    monkeypatch.undo()
    # It was counted: a second try must not be told that it is in the values.
    with pytest.raises(RuntimeError, match="earlier update"):
        push(local, 0)
    with pytest.raises(RuntimeError, match="earlier update"):
        values(local)
    pending = local.coordinator.snapshot("")
    assert pending is not None
    with pytest.raises(RuntimeError, match="earlier update"):
        pending.get()
    assert failures.empty()


def test_what_fails_before_the_commit_changes_nothing(
    local: LocalParts, failures: Failures, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise MemoryError("no memory for rows")

    monkeypatch.setattr(ParameterStore, "make_ready", fail)
    with pytest.raises(MemoryError):
        push(local, 0)
    monkeypatch.undo()
    assert failures.empty()
    assert local.coordinator.count_applied(task(0)) == AppliedCount()
    assert push(local, 0) is PushOutcome.APPLIED


def test_a_push_that_counts_is_reported_without_memory_for_the_answer(
    local: LocalParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second try is told that it counted before, and is not reported."""

    def fail(*arguments: object) -> None:
        raise MemoryError("no memory for values")

    monkeypatch.setattr(LockedShard, "memory_for", fail)
    claim = PushClaim(task(0), Token(1), 0, 1, Version(0))
    gradient = Gradient(memoryview(np.full(SIZE, -1, np.float32).tobytes()))
    reported: list[PushResult] = []
    call = local.plane.push(
        WorkerId(0), claim, gradient, answer=ReadRequest(), on_decided=reported.append
    )
    with pytest.raises(MemoryError), call:
        pass
    assert [result.outcome for result in reported] == [PushOutcome.APPLIED]
    assert local.coordinator.count_applied(task(0)) == AppliedCount(1, 1)


def test_a_flush_between_two_pushes_is_an_update_of_the_first(failures: Failures) -> None:
    local = ready(Sync(2), failures)
    assert push(local, 0) is PushOutcome.APPLIED
    with busy(local):
        local.coordinator.flush()
    assert (values(local) == 1).all()
    assert push(local, 1, base=1) is PushOutcome.APPLIED
    assert (values(local) == 1).all()
