"""The limit of open files of a process.

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
_ENOUGH = 1 << 16


def raise_limit() -> None:
    """Let this process open as many files as its user may give it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def share(part: int, most: int) -> int:
    """How many connections may be open at a time.

    Args:
        part: by which the limit of open files is divided.
        most: connections, whatever the limit is.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft == resource.RLIM_INFINITY else min(most, soft // part)


class FileLimit:
    """Recognizes that a process may open no more files, and warns of it once a minute at most.

    Args:
        what: that cannot be accepted then, for the warning.
        clock: seconds that only grow.
    """

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._clock = clock
        self._next = float("-inf")

    def is_reason(self, error: OSError) -> bool:
        """Whether the limit, or that of the machine, is the reason of an error."""
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
