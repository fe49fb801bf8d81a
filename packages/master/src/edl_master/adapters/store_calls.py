"""Calls of a store's client, each given up when it has made no progress for too long.

A store's client may wait forever, and there is no deadline that all clients support. So each call
is made in a thread of its own, which is abandoned then.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from edl_proto.errors import EdlError, ErrorCode
from recordio.storage.store_errors import is_transient, reason_of, remedy_of
from recordio.storage.stores import filesystem

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoreTimeouts:
    """How long a store may take, in seconds."""

    call_s: float = 120.0
    """For a call, or for the next bytes of one that reports progress: clients retry by themselves
    for about a minute."""

    slowest_bytes_per_s: float = 1e7
    """A move within a store reports no progress; its deadline follows from its size."""

    outage_s: float = 300.0
    """For an outage while a job needs the store: clients give up sooner."""


TIMEOUTS = StoreTimeouts()
_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.5, 15.0


def store_error(uri: str, error: Exception) -> EdlError:
    """Return the error of a store's client, for a user."""
    return EdlError(
        ErrorCode.OUTPUT_UNWRITABLE,
        f"the store does not serve {uri}: {reason_of(error)}",
        where=uri,
        remedy=remedy_of(error),
    )


class StoreCall:
    """A call of a store, with the deadline of its next progress.

    Attributes:
        system: the fsspec file system.
        path: within it.
        since: when it last made progress.
        until: when it is given up without further progress.
        given_up: it must change nothing any more, if it ever continues.
    """

    system: Any
    path: str

    def __init__(self) -> None:
        self.given_up = False
        self.extend_deadline()

    def open(self, uri: str) -> None:
        self.system, self.path = filesystem(uri.rstrip("/"))

    def extend_deadline(self, more_s: float = 0.0) -> None:
        """Note progress; the next step may take ``more_s`` longer than usual.

        Raises:
            TimeoutError: the deadline is over.
        """
        if self.given_up:
            raise TimeoutError("given up")
        self.since = time.monotonic()
        self.until = self.since + TIMEOUTS.call_s + more_s

    def transfer_progress(self) -> Any:
        """Return the callback that fsspec calls for bytes that were sent."""
        from fsspec.callbacks import Callback

        extend = self.extend_deadline

        class DeadlineCallback(Callback):  # type: ignore[misc]  # fsspec has no types
            def call(self, *args: Any, **kwargs: Any) -> None:
                extend()

            def branched(self, *args: Any, **kwargs: Any) -> Callback:
                return DeadlineCallback()

        return DeadlineCallback()


def run_persistently(uri: str, act: Callable[[StoreCall], T]) -> T:
    """Run a call, and repeat it while the store is unavailable: resets, 429, 5xx.

    Args:
        act: may be done again after any part of it.

    Raises:
        EdlError: OUTPUT_UNWRITABLE.
    """
    until = time.monotonic() + TIMEOUTS.outage_s
    pause = _FIRST_PAUSE_S
    while True:
        try:
            return run_call(uri, act)
        except EdlError as error:
            cause = error.__cause__
            is_over = time.monotonic() + pause > until
            if is_over or not isinstance(cause, Exception) or not is_transient(cause):
                raise
        time.sleep(pause * random.uniform(0.5, 1.5))
        pause = min(2 * pause, _MAX_PAUSE_S)


def run_call(uri: str, act: Callable[[StoreCall], T]) -> T:
    """Run a call as long as it makes progress. Raises: EdlError: OUTPUT_UNWRITABLE."""
    call = StoreCall()
    done: list[T] = []
    failed: list[Exception] = []
    ended = threading.Event()

    def run() -> None:
        try:
            call.open(uri)
            done.append(act(call))
        except Exception as error:  # a store's client has errors of its own
            failed.append(error)
        finally:
            ended.set()

    threading.Thread(target=run, name="store", daemon=True).start()
    while not ended.wait(max(0.0, call.until - time.monotonic())):
        if time.monotonic() >= call.until:
            call.given_up = True
            silent_s = call.until - call.since
            error = TimeoutError(f"the store has made no progress for {silent_s:.0f} s")
            raise store_error(uri, error)
    if failed:
        raise store_error(uri, failed[0]) from failed[0]
    return done[0]
