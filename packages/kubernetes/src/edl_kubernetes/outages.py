"""Repeats calls of an API server during an outage: it restarts, or the network is cut."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from edl_kubernetes.cluster.api_errors import ApiError, ApiUnavailable

T = TypeVar("T")

RETRY_S = 30.0
"""How long calls that an API server does not answer are repeated."""

POLL_S = 0.5


def retry_unanswered(call: Callable[[], T], timeout_s: float) -> T:
    """Return the answer of a call, which is repeated until it is answered.

    An unanswered call may have had an effect all the same. A server that starts denies all calls
    for a while, so after an outage a denial does not count as an answer.

    Raises:
        ApiUnavailable: no call was answered within the timeout.
        ApiError: the call was refused.
    """
    deadline = time.monotonic() + timeout_s
    was_away = False
    while True:
        try:
            return call()
        except ApiUnavailable:
            was_away = True
            if time.monotonic() >= deadline:
                raise
        except ApiError as error:
            if not (was_away and error.is_denial) or time.monotonic() >= deadline:
                raise
        time.sleep(POLL_S)
