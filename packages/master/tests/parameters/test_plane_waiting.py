"""The waiting around the parameter plane: for slots, for values, and for neither for ever."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pytest

from edl_master.adapters.buffer_pool import BufferPool
from edl_master.control.job_controller import SNAPSHOTS
from edl_master.core.identifiers import (
    AppliedCount,
    HeldLease,
    TaskKey,
    TaskType,
    Token,
    Version,
    WorkerId,
)
from edl_master.core.parameters.layout import Layout, Variable
from edl_master.core.parameters.modes import Async, Reduction, Sync, UpdateMode
from edl_master.core.parameters.optimizers import parse_optimizer
from edl_master.core.parameters.permits import PermitGranted, PermitRefused
from edl_master.core.parameters.push import Gradient, PushClaim, PushOutcome
from edl_master.core.parameters.push_ledger import PushLedger
from edl_master.parameters import locked_shard
from edl_master.parameters.locked_shard import ReadRequest
from edl_master.parameters.plane import LocalParts, Pulled, WaitLimit, build_local
from edl_master.parameters.stores import Model
from edl_proto.errors import EdlError, ErrorCode

LONG_S = 200.0
SIZE = 5
VARIABLES = (Variable("w", (SIZE,), "float32", True),)
SGD = json.dumps({"class_name": "SGD", "config": {"learning_rate": 1.0}})


def make(mode: UpdateMode) -> LocalParts:
    local = build_local(BufferPool(), lambda *_: mode)
    local.model.describe(VARIABLES, SGD, "sum")
    return local


def ready(mode: UpdateMode, tasks: int = 3) -> LocalParts:
    """A plane with values, and tasks 0, 1, ... granted under tokens 1, 2, ..."""
    local = make(mode)
    values = memoryview(np.zeros(SIZE, np.float32)).cast("B")
    assert local.plane.initialize(WorkerId(0), values)
    for number in range(tasks):
        local.coordinator.grant(lease(number).task, lease(number).token)
    return local


def lease(number: int) -> HeldLease:
    return HeldLease(TaskKey(TaskType.TRAINING, 0, number), Token(number + 1))


def push(local: LocalParts, number: int, minibatch: int = 0, base: int = 0) -> PushOutcome:
    gradient = np.full(SIZE, -1, np.float32)
    held = lease(number)
    claim = PushClaim(held.task, held.token, minibatch, 1, Version(base))
    values = Gradient(memoryview(gradient).cast("B"))
    with local.plane.push(WorkerId(number), claim, values) as pushed:
        return pushed.result.outcome


def pull(
    local: LocalParts,
    have: Version | None = None,
    permit_for: HeldLease | None = None,
    wait_s: float = 0.0,
    is_wanted: Callable[[], bool] = lambda: True,
) -> AbstractContextManager[Pulled]:
    waiting = WaitLimit(wait_s, is_wanted)
    return local.plane.pull(ReadRequest(have), permit_for=permit_for, waiting=waiting)


@dataclass
class Pulling:
    """A pull in a thread of its own."""

    local: LocalParts
    permit_for: HeldLease | None = None
    is_wanted: Callable[[], bool] = lambda: True
    got: list[Pulled] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._pull, daemon=True)
        self.thread.start()

    def _pull(self) -> None:
        with pull(self.local, None, self.permit_for, LONG_S, self.is_wanted) as answer:
            self.got.append(answer)

    @property
    def waits(self) -> bool:
        self.thread.join(0.05)
        return self.thread.is_alive()

    def answer(self) -> Pulled:
        self.thread.join(LONG_S / 2)
        assert self.got, "no answer"
        return self.got[0]


def test_a_push_waits_for_its_permit_until_the_version_is_complete() -> None:
    local = ready(Sync(2, Reduction.SUM))
    for number in (0, 1):
        with pull(local, None, lease(number)) as answer:
            assert answer.permit == PermitGranted(Version(0))
    third = Pulling(local, lease(2))
    assert third.waits
    assert push(local, 0) is PushOutcome.APPLIED
    assert third.waits
    assert push(local, 1) is PushOutcome.APPLIED
    answer = third.answer()
    assert answer.permit == PermitGranted(Version(1))
    assert answer.reading.version == 1


def test_a_waiter_gets_the_step_permit_of_a_lost_lease() -> None:
    local = ready(Sync(1))
    with pull(local, None, lease(0)) as answer:
        assert isinstance(answer.permit, PermitGranted)
    second = Pulling(local, lease(1))
    assert second.waits
    local.coordinator.revoke(lease(0).task, lease(0).token)
    assert isinstance(second.answer().permit, PermitGranted)


@pytest.mark.parametrize("end", ["revoke", "close"])
def test_a_worker_that_lost_its_lease_stops_waiting(end: str) -> None:
    local = ready(Sync(1))
    with pull(local, None, lease(0)):
        pass
    second = Pulling(local, lease(1))
    assert second.waits
    if end == "revoke":
        local.coordinator.revoke(lease(1).task, lease(1).token)
    else:
        local.coordinator.close(lease(1).task)
    assert isinstance(second.answer().permit, PermitRefused)


def test_waiters_leave_when_the_job_is_over() -> None:
    local = ready(Sync(1))
    with pull(local, None, lease(0)):
        pass
    waiting = [Pulling(local, lease(number)) for number in (1, 2)]
    assert all(each.waits for each in waiting)
    local.coordinator.end_waits()
    assert [each.answer().permit for each in waiting] == [None, None]


def test_a_worker_that_left_gets_no_step_permit() -> None:
    local = ready(Sync(1))
    with pull(local, None, lease(0)):
        pass
    here = threading.Event()
    here.set()
    gone = Pulling(local, lease(1), here.is_set)
    assert gone.waits
    here.clear()
    local.coordinator.revoke(lease(0).task, lease(0).token)
    assert gone.answer().permit is None
    with pull(local, None, lease(2)) as answer:
        assert isinstance(answer.permit, PermitGranted)


def test_waiting_ends_after_the_time_that_was_asked_for() -> None:
    local = ready(Sync(1))
    with pull(local, None, lease(0)):
        pass
    started = time.monotonic()
    with pull(local, None, lease(1), 0.1) as answer:
        assert answer.permit is None
    assert time.monotonic() - started >= 0.1


def test_a_pull_waits_for_the_initial_values() -> None:
    local = make(Async())
    with pull(local, None) as answer:
        assert not answer.reading.initialized
        assert answer.reading.values.nbytes == 0
    waiting = Pulling(local)
    assert waiting.waits
    local.plane.initialize(WorkerId(0), memoryview(np.ones(SIZE, np.float32)).cast("B"))
    answer = waiting.answer()
    assert answer.reading.initialized
    assert answer.reading.values.nbytes == 4 * SIZE


def test_nothing_is_copied_for_a_worker_that_has_the_version() -> None:
    local = ready(Async())
    with pull(local, Version(0)) as answer:
        assert (answer.reading.version, answer.reading.values.nbytes) == (0, 0)
    push(local, 0)
    with pull(local, Version(0)) as answer:
        assert np.array_equal(np.frombuffer(answer.reading.values, np.float32), np.ones(SIZE))
        # Values are those of one moment, whatever is applied while they travel.
        push(local, 0, 1, base=1)
        assert np.array_equal(np.frombuffer(answer.reading.values, np.float32), np.ones(SIZE))


def test_a_second_description_must_be_the_first() -> None:
    local = ready(Async())
    other = (Variable("w", (SIZE + 1,), "float32", True),)
    with pytest.raises(EdlError) as caught:
        local.model.describe(other, SGD, "sum")
    assert caught.value.code == ErrorCode.SHAPE_MISMATCH
    assert "'w'" in caught.value.what
    fingerprint, values_missing = local.model.describe(VARIABLES, SGD, "sum")
    assert fingerprint == local.shard.layout.fingerprint
    assert not values_missing


def test_a_push_during_a_long_compilation_comes_too_early_and_counts_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker repeats what is NOT_READY, and takes what has no answer for a lost master."""
    monkeypatch.setattr(locked_shard, "_WARM_UP_WAIT_S", 0.01)
    local = build_local(BufferPool(), lambda *_: Async(), on_described=lambda: None)
    local.model.describe(VARIABLES, SGD, "sum")
    local.plane.initialize(WorkerId(0), memoryview(np.zeros(SIZE, np.float32)).cast("B"))
    local.coordinator.grant(lease(0).task, lease(0).token)
    for _ in range(3):
        with pytest.raises(EdlError, match="still being compiled") as caught:
            push(local, 0)
        assert caught.value.code == ErrorCode.NOT_READY
    local.model.warm_up()
    assert push(local, 0) is PushOutcome.APPLIED
    assert local.coordinator.count_applied(lease(0).task).minibatches == 1


def test_a_call_to_a_parameter_server_that_compiles_says_what_it_waits_for() -> None:
    """A server has no shard before it has compiled what updates need."""
    shard = locked_shard.LockedShard(BufferPool(), lambda _: None, lambda _: None, 0.01)
    early = pytest.raises(EdlError, match="still being compiled")
    with early as caught, shard.read(locked_shard.ReadRequest()):
        pass
    assert caught.value.code == ErrorCode.NOT_READY


@pytest.mark.parametrize(
    ("variables", "optimizer", "reduction", "code"),
    [
        (VARIABLES, '{"class_name": "Magic", "config": {}}', "sum", "OPTIMIZER_UNSUPPORTED"),
        (VARIABLES, "{", "sum", "MODEL_CONTRACT"),
        (VARIABLES, SGD, "median", "MODEL_CONTRACT"),
        ((Variable("w", (2,), "int32", True),), SGD, "sum", "MODEL_CONTRACT"),
        (VARIABLES * 2, SGD, "sum", "MODEL_CONTRACT"),
    ],
)
def test_a_model_that_cannot_be_served_is_refused(
    variables: tuple[Variable, ...], optimizer: str, reduction: str, code: str
) -> None:
    local = build_local(BufferPool(), lambda *_: Async())
    with pytest.raises(EdlError) as caught:
        local.model.describe(variables, optimizer, reduction)
    assert ErrorCode.Name(caught.value.code) == code


def test_before_a_model_is_described_there_is_nothing() -> None:
    local = build_local(BufferPool(), lambda *_: Async())
    with pytest.raises(EdlError) as caught:
        local.plane.initialize(WorkerId(0), memoryview(b""))
    assert caught.value.code == ErrorCode.NOT_READY
    local.coordinator.revoke(lease(0).task, lease(0).token)
    local.coordinator.close(lease(0).task)
    local.coordinator.flush()
    assert local.coordinator.count_applied(lease(0).task) == AppliedCount()
    assert local.coordinator.snapshot(SNAPSHOTS) is None


def test_many_at_once_lose_nothing() -> None:
    """Pushes, pulls and freezing from many threads: each gradient is applied once."""
    workers, each = 6, 50
    local = ready(Async(), workers)
    torn: list[str] = []

    def work(number: int) -> None:
        for minibatch in range(each):
            with pull(local, None) as answer:
                values = np.frombuffer(answer.reading.values, np.float32)
                if not np.all(values == values[0]) or values[0] != answer.reading.version:
                    torn.append(f"version {answer.reading.version} holds {values}")
            assert push(local, number, minibatch, answer.reading.version) is PushOutcome.APPLIED

    threads = [threading.Thread(target=work, args=(number,)) for number in range(workers)]
    for thread in threads:
        thread.start()
    for number in range(20):
        local.coordinator.freeze(f"f{number}")
        local.coordinator.release(f"f{number}")
    for thread in threads:
        thread.join()
    assert torn == []
    with pull(local, None) as answer:
        values = np.frombuffer(answer.reading.values, np.float32)
        assert np.array_equal(values, np.full(SIZE, float(workers * each)))
    assert [
        local.coordinator.count_applied(lease(number).task).minibatches for number in range(workers)
    ] == [each] * workers


def test_no_worker_can_use_the_leases_of_an_earlier_master() -> None:
    """Their holders are not known: until a task is leased again, no token is good for it."""
    earlier = PushLedger(Async())
    earlier.initialize()
    earlier.grant(lease(0).task, lease(0).token, WorkerId(0))
    local = make(Async())
    model = Layout(VARIABLES)
    local.coordinator.begin(
        Model(model, parse_optimizer(json.loads(SGD)), SGD, Async()), earlier.describe()
    )
    claim = PushClaim(lease(0).task, lease(0).token, 0, 1, Version(0), worker=WorkerId(1))
    assert local.coordinator.commit(claim).outcome is PushOutcome.REFUSED
    assert local.coordinator.wait_for_permit(lease(0), 0.0) == PermitRefused()
    assert local.coordinator.grant(lease(0).task, Token(9), WorkerId(1)) == 0
    assert isinstance(
        local.coordinator.wait_for_permit(HeldLease(lease(0).task, Token(9)), 0.0), PermitGranted
    )


def test_another_worker_takes_no_permit_with_servers_or_without() -> None:
    local = ready(Sync(1), 0)
    local.coordinator.grant(lease(0).task, lease(0).token, WorkerId(0))
    wait = partial(local.coordinator.wait_for_permit, lease(0), 0.0)
    assert wait(worker=WorkerId(1)) == PermitRefused()
    assert isinstance(wait(worker=WorkerId(0)), PermitGranted)
