"""How the client ends processes and containers of this machine."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable
from typing import Protocol

_POLL_S = 0.05


class LocalInstance(Protocol):
    """A process or a container."""

    @property
    def is_alive(self) -> bool:
        """Whether it is still there."""

    def send(self, what: signal.Signals) -> None:
        """Signal it."""


def end(instances: Iterable[LocalInstance], grace_s: float) -> list[LocalInstance]:
    """End instances, each with the group it leads: ask, and kill those left after ``grace_s``.

    Returns:
        Those that were alive.
    """
    living = [instance for instance in instances if instance.is_alive]
    for instance in living:
        instance.send(signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while any(instance.is_alive for instance in living) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    for instance in living:
        instance.send(signal.SIGKILL)
    deadline = time.monotonic() + grace_s
    while any(instance.is_alive for instance in living) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return living
