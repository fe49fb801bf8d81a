"""The limit on the open files of a process.

Each connection is an open file. If strangers could open as many connections as the limit allows,
the process could not open the files that it writes, and its job would fail.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import resource
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

_PAUSE_S = 60.0
_SUFFICIENT_FILES = 1 << 16


def raise_limit() -> None:
    """Raise this process's limit on open files as far as its user may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _SUFFICIENT_FILES if hard == resource.RLIM_INFINITY else min(hard, _SUFFICIENT_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def share(part: int, maximum: int) -> int:
    """Return how many connections may be open at a time.

    Args:
        part: the divisor of the limit on open files.
        maximum: the number of connections that is never exceeded.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return maximum if soft == resource.RLIM_INFINITY else min(maximum, soft // part)


class FileLimit:
    """Notices that a process may open no more files, and warns about it at most once a minute.

    Args:
        what: names in the warning what cannot be accepted then.
        clock: seconds that only grow.
    """

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._clock = clock
        self._next = float("-inf")

    def is_reason(self, error: OSError) -> bool:
        """Tell whether an error was caused by this limit, or by that of the machine."""
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            return False
        if self._clock() >= self._next:
            self._next = self._clock() + _PAUSE_S
            log.warning(
                "%s cannot be accepted, because no more files can be opened (the process may open"
                " %d, see ulimit -n): %s. Connections without a call make room.",
                self._what,
                resource.getrlimit(resource.RLIMIT_NOFILE)[0],
                error.strerror,
            )
        return True
