"""Calls of the API server that must be answered before a master can continue.

At its start and at its end a master needs the API server, which may be restarting or
out of reach for minutes. In between it can.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from edl_kubernetes.cluster.api import ApiError, ApiUnavailable

log = logging.getLogger(__name__)

T = TypeVar("T")

_FIRST_S = 0.5
_MAX_PAUSE_S = 10.0
_REJECTED_S = 20.0
_UNAUTHORIZED = 401


class TokenRejected(Exception):
    """The API server has answered nothing but 401 for long: it no longer knows this pod.

    A pod's token ends with the pod. One such answer decides nothing: an API server that starts, or
    that has lost its store, gives it to every caller.
    """


def retry_until_answered(
    call: Callable[[], T],
    what: str,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """Repeat a call until it is answered, without a limit, since nothing else helps.

    Args:
        call: what to do; an earlier one may have had an effect without being answered.
        what: is being done, in words.
        sleep: waits for a number of seconds.
        clock: seconds of a clock that never goes back.

    Raises:
        ApiError: the API server has refused the call; for lack of rights, for 20 s.
        TokenRejected: it has refused this pod's token for 20 s, and given no other answer.
    """
    wait_s = _FIRST_S
    rejected_since: float | None = None
    while True:
        try:
            return call()
        except ApiUnavailable as error:
            rejected_since = None
            log.warning("%s: the API server does not answer (%s); trying again", what, error)
        except ApiError as error:
            if not error.is_denial:
                raise
            now = clock()
            rejected_since = now if rejected_since is None else rejected_since
            if now - rejected_since >= _REJECTED_S and error.status != _UNAUTHORIZED:
                raise
            if now - rejected_since >= _REJECTED_S:
                message = f"{what}: the API server no longer knows this pod ({error.message})"
                raise TokenRejected(message) from error
            log.warning("%s: the API server refuses this pod: %s; trying again", what, error)
        sleep(wait_s)
        wait_s = min(2 * wait_s, _MAX_PAUSE_S)
