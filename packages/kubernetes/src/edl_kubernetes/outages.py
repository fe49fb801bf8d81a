"""Calls of an API server that may be away for a moment: it restarts, or the network is cut."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from edl_runtime.kubernetes.api_errors import ApiError, ApiUnavailable

T = TypeVar("T")

RETRY_S = 30.0
"""How long an API server that does not answer is asked again."""

POLL_S = 0.5


def retry_unanswered(call: Callable[[], T], timeout_s: float) -> T:
    """The answer of a call that may be repeated; an unanswered one may have had an effect.

    Raises:
        ApiUnavailable: no call was answered for so long.
        ApiError: a call was refused. A server that starts denies everybody everything: while one
            comes back, a denial is no answer.
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
