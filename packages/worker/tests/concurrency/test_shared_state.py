"""What the threads of a worker share."""

from __future__ import annotations

import threading
import time

import pytest

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.concurrency.shared_state import Departure, LeavingError, SharedState
from edl_worker.core.tasks import (
    LeaseRef,
    MasterReplacedError,
    TaskKey,
    TaskLostError,
    TaskType,
)


def ref(token: int) -> LeaseRef:
    return LeaseRef(TaskKey(TaskType.TRAINING, 1, token), token)


def test_a_check_of_a_lease_names_the_reason_to_stop() -> None:
    state = SharedState()
    state.hold(ref(1))
    state.check_lease(ref(1))
    state.mark_lost([ref(1)])
    with pytest.raises(TaskLostError):
        state.check_lease(ref(1))
    state.master_replaced = True
    with pytest.raises(MasterReplacedError):
        state.check_lease(ref(1))
    state.leave(Departure("terminated"))
    with pytest.raises(LeavingError):
        state.check_lease(ref(1))


def test_leases_are_held_lost_and_released() -> None:
    state = SharedState()
    for token in (1, 2):
        state.hold(ref(token))
    state.mark_lost([ref(2), ref(3)])
    assert [lease.token for lease in state.leases()] == [1]
    assert state.is_lost(ref(2))
    assert not state.is_lost(ref(3)), "never held"
    state.release(ref(2))
    assert not state.is_lost(ref(2))
    state.release_all()
    assert state.leases() == []


def test_the_first_reason_to_leave_counts() -> None:
    state = SharedState()
    state.check()
    state.leave(Departure("terminated"))
    error = EdlError(ErrorCode.MASTER_LOST, "gone")
    state.leave(Departure("master-lost", error))
    assert state.departure is not None
    assert (state.departure.reason, state.departure.exit_code) == ("terminated", 0)
    with pytest.raises(LeavingError):
        state.check()


def test_a_sleep_ends_when_the_worker_has_to_leave() -> None:
    state = SharedState()
    state.sleep(0.01)
    threading.Timer(0.05, lambda: state.leave(Departure("terminated"))).start()
    started = time.monotonic()
    with pytest.raises(LeavingError):
        state.sleep(600)
    assert time.monotonic() - started < 300
