"""Calls of the API server that must be answered before a master can go on.

At its start and at its end a master cannot do without the API server, which may be restarting or
out of reach for minutes. In between it can.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from edl_proto.kubernetes.api import ApiUnavailable

log = logging.getLogger(__name__)

T = TypeVar("T")

_FIRST_S = 0.5
_LONGEST_S = 10.0


def retry_until_answered(
    call: Callable[[], T], what: str, sleep: Callable[[float], None] = time.sleep
) -> T:
    """The answer of a call that may be repeated; without a limit, since nothing else helps.

    Args:
        call: what to do; an earlier one may have had an effect without being answered.
        what: is being done, in words.
        sleep: waits so many seconds.

    Raises:
        ApiError: the API server has refused the call.
    """
    wait_s = _FIRST_S
    while True:
        try:
            return call()
        except ApiUnavailable as error:
            log.warning("%s: the API server does not answer (%s); trying again", what, error)
        sleep(wait_s)
        wait_s = min(2 * wait_s, _LONGEST_S)
