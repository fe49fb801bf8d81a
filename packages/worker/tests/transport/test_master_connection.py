"""Which calls are repeated, and for how long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import grpc
import pytest

from edl_proto.errors import EdlError, ErrorCode
from edl_proto.rpc_errors import status_of
from edl_proto.transport.direct_connection import CallError
from edl_worker.concurrency.shared_state import Departure, LeavingError, SharedState
from edl_worker.config import Settings
from edl_worker.core.registration import WorkerIdentity
from edl_worker.transport.master_connection import MasterConnection


@pytest.fixture
def state() -> SharedState:
    return SharedState()


@pytest.fixture
def connection(state: SharedState) -> Iterator[MasterConnection]:
    # Calls that are repeated within a time limit would end at the first failure.
    settings = Settings("127.0.0.1:1", 0, master_wait_s=0.0, server_wait_s=0.0)
    connection = MasterConnection(settings, WorkerIdentity(0, "host:1:0", "host", 1), state)
    yield connection
    connection.close()


def refusal(code: ErrorCode.ValueType) -> grpc.RpcError:
    error = EdlError(code, "not all of 2 parameter servers have answered")
    return CallError(status_of(error), error.what, error)


def test_a_call_that_comes_too_early_is_repeated(connection: MasterConnection) -> None:
    replies = iter([refusal(ErrorCode.NOT_READY)] * 3)

    def attempt() -> str:
        for error in replies:
            raise error
        return "ready"

    assert connection.call("Ready", attempt) == "ready"


def test_a_worker_that_has_to_leave_does_not_wait_until_a_call_is_in_time(
    connection: MasterConnection, state: SharedState
) -> None:
    calls: list[int] = []

    def attempt() -> None:
        calls.append(len(calls))
        if len(calls) == 3:
            state.leave(Departure("stopped"))
        raise refusal(ErrorCode.NOT_READY)

    with pytest.raises(LeavingError):
        connection.call("Ready", attempt)
    assert len(calls) == 3


def test_waiting_until_a_call_is_in_time_is_no_absence_of_the_master(
    connection: MasterConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master replied for 1,000 s before it was away for a moment."""
    connection.settings = replace(connection.settings, master_wait_s=60.0)
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    away = CallError(grpc.StatusCode.UNAVAILABLE, "it restarts")
    replies = iter([refusal(ErrorCode.NOT_READY), away])

    def attempt() -> str:
        nonlocal now
        now += 1000.0 if not now else 1.0
        for error in replies:
            raise error
        return "ready"

    assert connection.call("Ready", attempt) == "ready"


@pytest.mark.parametrize("code", [ErrorCode.VERSION_NOT_FOUND, ErrorCode.STALE_LEASE])
def test_other_refusals_are_raised_at_once(
    connection: MasterConnection, code: ErrorCode.ValueType
) -> None:
    calls: list[int] = []

    def attempt() -> None:
        calls.append(len(calls))
        raise refusal(code)

    with pytest.raises(EdlError) as raised:
        connection.call("Pull", attempt)
    assert raised.value.code == code
    assert len(calls) == 1
