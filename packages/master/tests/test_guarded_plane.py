"""The waiting around the parameter plane: for slots, for values, and for neither for ever."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from edl_master.adapters.buffer_pool import BufferPool
from edl_master.control.job_controller import SNAPSHOTS
from edl_master.core.events import HeldLease
from edl_master.core.identifiers import TaskKey, TaskType, Token, Version, WorkerId
from edl_master.core.parameters.exchange import GradientPush, PermitGranted, PermitRefused, PushKind
from edl_master.core.parameters.layout import Variable
from edl_master.core.parameters.modes import Async, Reduction, Sync, UpdateMode
from edl_master.guarded_plane import GuardedPlane, Pulled
from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2

LONG_S = 60.0
SIZE = 5
VARIABLES = (Variable("w", (SIZE,), "float32", True),)
SGD = json.dumps({"class_name": "SGD", "config": {"learning_rate": 1.0}})


def make(mode: UpdateMode) -> GuardedPlane:
    plane = GuardedPlane(lambda reduction: mode, None, BufferPool())
    plane.describe(VARIABLES, SGD, "sum")
    return plane


def ready(mode: UpdateMode, tasks: int = 3) -> GuardedPlane:
    """With values, and tasks 0, 1, ... granted under tokens 1, 2, ..."""
    plane = make(mode)
    values = memoryview(np.zeros(SIZE, np.float32)).cast("B")
    assert plane.initialize(values, WorkerId(0)) == (True, 0)
    for number in range(tasks):
        plane.grant(lease(number).task, lease(number).token)
    return plane


def lease(number: int) -> HeldLease:
    return HeldLease(TaskKey(TaskType.TRAINING, 0, number), Token(number + 1))


def push(plane: GuardedPlane, number: int, minibatch: int = 0, base: int = 0) -> PushKind:
    gradient = np.full(SIZE, -1, np.float32)
    held = lease(number)
    return plane.push(
        GradientPush(
            held.task, held.token, minibatch, 1, Version(base), memoryview(gradient).cast("B")
        )
    ).kind


@dataclass
class Pulling:
    """A pull in a thread of its own."""

    plane: GuardedPlane
    slot_for: HeldLease | None = None
    is_wanted: Callable[[], bool] = lambda: True
    got: list[Pulled] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._pull, daemon=True)
        self.thread.start()

    def _pull(self) -> None:
        with self.plane.pulled(
            have=None, slot_for=self.slot_for, wait_s=LONG_S, is_wanted=self.is_wanted
        ) as pulled:
            self.got.append(pulled)

    @property
    def waits(self) -> bool:
        self.thread.join(0.05)
        return self.thread.is_alive()

    def answer(self) -> Pulled:
        self.thread.join(LONG_S / 2)
        assert self.got, "nobody answers"
        return self.got[0]


def test_who_needs_a_slot_waits_until_the_version_is_complete() -> None:
    plane = ready(Sync(2, Reduction.SUM))
    for number in (0, 1):
        with plane.pulled(have=None, slot_for=lease(number)) as pulled:
            assert pulled.slot == PermitGranted(Version(0))
    third = Pulling(plane, lease(2))
    assert third.waits
    assert push(plane, 0) is PushKind.APPLIED
    assert third.waits
    assert push(plane, 1) is PushKind.APPLIED
    answer = third.answer()
    assert answer.slot == PermitGranted(Version(1))
    assert answer.version == 1


def test_who_waits_for_a_slot_gets_that_of_a_lost_lease() -> None:
    plane = ready(Sync(1))
    with plane.pulled(have=None, slot_for=lease(0)) as pulled:
        assert isinstance(pulled.slot, PermitGranted)
    second = Pulling(plane, lease(1))
    assert second.waits
    plane.revoke(lease(0).task, lease(0).token)
    assert isinstance(second.answer().slot, PermitGranted)


@pytest.mark.parametrize("end", ["revoke", "close"])
def test_who_has_lost_its_lease_waits_no_longer(end: str) -> None:
    plane = ready(Sync(1))
    with plane.pulled(have=None, slot_for=lease(0)):
        pass
    second = Pulling(plane, lease(1))
    assert second.waits
    if end == "revoke":
        plane.revoke(lease(1).task, lease(1).token)
    else:
        plane.close(lease(1).task)
    assert isinstance(second.answer().slot, PermitRefused)


def test_nobody_waits_when_the_job_is_over() -> None:
    plane = ready(Sync(1))
    with plane.pulled(have=None, slot_for=lease(0)):
        pass
    waiting = [Pulling(plane, lease(number)) for number in (1, 2)]
    assert all(each.waits for each in waiting)
    plane.let_go()
    assert [each.answer().slot for each in waiting] == [None, None]


def test_who_is_gone_gets_no_slot() -> None:
    plane = ready(Sync(1))
    with plane.pulled(have=None, slot_for=lease(0)):
        pass
    here = threading.Event()
    here.set()
    gone = Pulling(plane, lease(1), here.is_set)
    assert gone.waits
    here.clear()
    plane.revoke(lease(0).task, lease(0).token)
    assert gone.answer().slot is None
    with plane.pulled(have=None, slot_for=lease(2)) as pulled:
        assert isinstance(pulled.slot, PermitGranted)


def test_waiting_ends_after_the_time_that_was_asked_for() -> None:
    plane = ready(Sync(1))
    with plane.pulled(have=None, slot_for=lease(0)):
        pass
    started = time.monotonic()
    with plane.pulled(have=None, slot_for=lease(1), wait_s=0.1) as pulled:
        assert pulled.slot is None
    assert time.monotonic() - started >= 0.1


def test_who_comes_before_the_initial_values_waits_for_them() -> None:
    plane = make(Async())
    with plane.pulled(have=None, wait_s=0.0) as pulled:
        assert not pulled.initialized
        assert pulled.values.nbytes == 0
    waiting = Pulling(plane)
    assert waiting.waits
    plane.initialize(memoryview(np.ones(SIZE, np.float32)).cast("B"), WorkerId(0))
    answer = waiting.answer()
    assert answer.initialized
    assert answer.values.nbytes == 4 * SIZE


def test_nothing_is_copied_for_who_has_the_version() -> None:
    plane = ready(Async())
    with plane.pulled(have=Version(0)) as pulled:
        assert (pulled.version, pulled.values.nbytes) == (0, 0)
    push(plane, 0)
    with plane.pulled(have=Version(0)) as pulled:
        assert np.array_equal(np.frombuffer(pulled.values, np.float32), np.ones(SIZE))
        # Values are those of one moment, whatever is applied while they travel.
        push(plane, 0, 1, base=1)
        assert np.array_equal(np.frombuffer(pulled.values, np.float32), np.ones(SIZE))


def test_a_second_description_must_be_the_first() -> None:
    plane = ready(Async())
    other = (Variable("w", (SIZE + 1,), "float32", True),)
    with pytest.raises(EdlError) as caught:
        plane.describe(other, SGD, "sum")
    assert caught.value.code == error_pb2.SHAPE_MISMATCH
    assert "'w'" in caught.value.what
    fingerprint, values_missing = plane.describe(VARIABLES, SGD, "sum")
    assert fingerprint == plane.layout.fingerprint
    assert not values_missing


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
    plane = GuardedPlane(lambda reduction: Async(), None, BufferPool())
    with pytest.raises(EdlError) as caught:
        plane.describe(variables, optimizer, reduction)
    assert error_pb2.ErrorCode.Name(caught.value.code) == code


def test_before_a_model_is_described_there_is_nothing() -> None:
    plane = GuardedPlane(lambda reduction: Async(), None, BufferPool())
    with pytest.raises(EdlError) as caught:
        plane.initialize(memoryview(b""), WorkerId(0))
    assert caught.value.code == error_pb2.NOT_READY
    plane.revoke(lease(0).task, lease(0).token)
    plane.close(lease(0).task)
    plane.flush()
    assert plane.applied(lease(0).task) == 0
    assert plane.snapshot(SNAPSHOTS) is None


def test_many_at_once_lose_nothing() -> None:
    """Pushes, pulls and freezing from many threads: each gradient is applied once."""
    workers, each = 6, 50
    plane = ready(Async(), workers)
    torn: list[str] = []

    def work(number: int) -> None:
        for minibatch in range(each):
            with plane.pulled(have=None) as pulled:
                values = np.frombuffer(pulled.values, np.float32)
                if not np.all(values == values[0]) or values[0] != pulled.version:
                    torn.append(f"version {pulled.version} holds {values}")
            assert push(plane, number, minibatch, pulled.version) is PushKind.APPLIED

    threads = [threading.Thread(target=work, args=(number,)) for number in range(workers)]
    for thread in threads:
        thread.start()
    for number in range(20):
        plane.freeze(f"f{number}")
        plane.release(f"f{number}")
    for thread in threads:
        thread.join()
    assert torn == []
    with plane.pulled(have=None) as pulled:
        values = np.frombuffer(pulled.values, np.float32)
        assert np.array_equal(values, np.full(SIZE, float(workers * each)))
    assert [plane.applied(lease(number).task) for number in range(workers)] == [each] * workers
