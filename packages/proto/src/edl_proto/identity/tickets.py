"""Tickets: callers get one where they have proved their identity, and show it elsewhere."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable

from edl_proto.identity.names import Identity

TICKET_BYTES = 32

_VALID_S = 60.0
"""How long a ticket is valid; callers show it at once."""

_MAX_PER_CALLER = 32
"""The number of open tickets of a caller; one more voids its oldest."""


class Tickets:
    """The tickets of one server; each is good once.

    Args:
        now: seconds on a clock that never goes back.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._open: dict[bytes, tuple[Identity, float]] = {}  # the oldest first

    def issue(self, caller: Identity) -> bytes:
        """Issue a ticket of ``TICKET_BYTES`` to a caller that has proved its identity."""
        ticket = secrets.token_bytes(TICKET_BYTES)
        with self._lock:
            self._forget_expired()
            same = [one for one, (holder, _) in self._open.items() if holder == caller]
            if len(same) >= _MAX_PER_CALLER:
                del self._open[same[0]]
            self._open[ticket] = caller, self._now() + _VALID_S
        return ticket

    def redeem(self, ticket: bytes) -> Identity:
        """Return the identity of the caller that shows this ticket, and void the ticket.

        Raises:
            ValueError: it is not, or no longer, a ticket.
        """
        with self._lock:
            self._forget_expired()
            found = self._open.pop(ticket, None)
        if found is None:
            raise ValueError("no such ticket is open")
        return found[0]

    def _forget_expired(self) -> None:
        while self._open:
            oldest = next(iter(self._open))
            if self._open[oldest][1] > self._now():
                return
            del self._open[oldest]
