"""How the client ends processes and containers of this machine."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable
from typing import Protocol

_POLL_S = 0.05


class Body(Protocol):
    """A process or a container."""

    @property
    def is_alive(self) -> bool:
        """Whether it is still there."""

    def send(self, what: signal.Signals) -> None:
        """Signal it."""


def end(bodies: Iterable[Body], grace_s: float) -> list[Body]:
    """End bodies, each with the group it leads: ask, and kill those left after ``grace_s``.

    Returns:
        Those that were alive.
    """
    living = [body for body in bodies if body.is_alive]
    for body in living:
        body.send(signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while any(body.is_alive for body in living) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    for body in living:
        body.send(signal.SIGKILL)
    deadline = time.monotonic() + grace_s
    while any(body.is_alive for body in living) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return living
