"""Calls to all parameter servers of a job at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import grpc

from edl_proto.errors import EdlError
from edl_proto.transport.direct_connection import FrameError
from edl_proto.transport.parameters import ShardStub
from edl_proto.transport.raw_calls import Pending, finish

PASSING = frozenset(
    (
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
    )
)
"""How a call ends when the process that should answer is away, starting, or being killed at this
moment."""

_WORTH_THREADS = 4 << 20
"""Bytes to copy from which on a thread for each server is faster than one for all of them."""

CheckMaster = Callable[[], object]
"""Raises if the master does not answer, or was replaced."""

T = TypeVar("T")


class ParameterServerLostError(Exception):
    """A server does not answer, though the master of its incarnation does.

    Args:
        number: of the server.
        address: where it should be.
        cause: what the call ended with.
    """

    def __init__(self, number: int, address: str, cause: str) -> None:
        super().__init__(f"parameter server {number} at {address}: {cause}")
        self.number, self.address, self.cause = number, address, cause


@dataclass(frozen=True, slots=True)
class _Outcome(Generic[T]):
    """The result of a call, or the error with which it has failed."""

    value: T | None = None
    error: Exception | None = None


class ServerCalls:
    """Makes a call of each server.

    If a call fails, ``check_master`` is called: a server that does not answer may be gone together
    with the master that started it, and then the new one says so. All methods raise
    ``ParameterServerLostError`` if a server cannot be reached, and ``grpc.RpcError`` or
    ``FrameError`` if a server has refused, or the master cannot be reached.

    Args:
        stubs: of the servers, in their order.
    """

    def __init__(self, stubs: Iterable[ShardStub]) -> None:
        self._stubs = tuple(stubs)
        self._threads = ThreadPoolExecutor(len(self._stubs), thread_name_prefix="servers")

    def close(self) -> None:
        self._threads.shutdown(wait=False)

    def call(self, act: Callable[[int], T], check_master: CheckMaster) -> list[T]:
        """Do something with all servers, each in a thread of its own."""
        outcomes = self._threads.map(_attempt(act), range(len(self._stubs)))
        return self._results(list(outcomes), check_master)

    def exchange(
        self, begin: Callable[[int], Pending[T]], nbytes: int, check_master: CheckMaster
    ) -> list[T]:
        """Send a request to all servers, then receive all answers.

        To hand a small call over to another thread costs more than the call. So this thread makes
        all of them, unless there is much to copy, or to connect comes first: no server waits until
        the connection to another one has failed.

        Args:
            begin: begins the call of a server.
            nbytes: of requests and answers.
        """
        if nbytes >= _WORTH_THREADS or any(stub.must_connect for stub in self._stubs):
            return self.call(lambda number: finish(begin(number)), check_master)
        calls = [begin(number) for number in range(len(self._stubs))]
        sent = [_attempt(next)(call) for call in calls]
        outcomes: list[_Outcome[Any]] = [
            one if one.error else _attempt(finish)(call)
            for call, one in zip(calls, sent, strict=True)
        ]
        return self._results(outcomes, check_master)

    def _results(self, outcomes: Sequence[_Outcome[Any]], check_master: CheckMaster) -> list[Any]:
        errors = [one.error for one in outcomes if one.error is not None]
        if not errors:
            return [one.value for one in outcomes]
        if any(isinstance(error, grpc.RpcError | FrameError) for error in errors):
            check_master()
        for number, one in enumerate(outcomes):
            error = one.error
            if (
                isinstance(error, grpc.RpcError)
                and error.code() in PASSING
                and EdlError.from_rpc(error) is None
            ):
                cause = f"{error.code().name}: {error.details()}"
                raise ParameterServerLostError(
                    number, self._stubs[number].address, cause
                ) from error
        raise errors[0]


def _attempt(act: Callable[[Any], T]) -> Callable[[Any], _Outcome[T]]:
    """Make a function return its outcome instead of raising."""

    def attempt(argument: Any) -> _Outcome[T]:
        try:
            return _Outcome(act(argument))
        except Exception as error:
            return _Outcome(error=error)

    return attempt
