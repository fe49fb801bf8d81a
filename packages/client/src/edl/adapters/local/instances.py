"""How the client ends processes and containers of this machine."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable
from typing import Protocol

MASTER_GRACE_S = 5.0
WORKER_GRACE_S = 2.0
"""From SIGTERM to SIGKILL. Masters of jobs that go on give their workers the time that the job's
specification says; these are for what is left of a job, or does not answer."""

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
        Those that were alive, and have ended.
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
    return [instance for instance in living if not instance.is_alive]
