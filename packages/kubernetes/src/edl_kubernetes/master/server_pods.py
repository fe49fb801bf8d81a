"""Parameter servers as pods of the cluster; they do not see the files of the master."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from edl_master.core.events import InstanceExited, InstanceNotStarted, InstancePending
from edl_master.core.failure_policy import describe_exit
from edl_master.core.identifiers import WorkerId
from edl_master.core.platform import Platform

log = logging.getLogger(__name__)

_FORMER_S = 60.0
"""How long the end of a former master's server may go unnoticed."""


class ServerPods:
    """The pods of one incarnation, by the numbers of their servers.

    Args:
        pods: the platform of pods of this role.
        count: how many.
        on_end: called with the number of a server that ended by itself, or is not
            followed any more, and how.
    """

    def __init__(self, pods: Platform, count: int, on_end: Callable[[int, str], None]) -> None:
        self._pods = pods
        self._count = count
        self._on_end = on_end
        self._pending = [""] * count
        self._closing = threading.Event()
        threading.Thread(target=self._run, name="server-pods", daemon=True).start()

    @property
    def pids(self) -> tuple[int, ...]:
        """Zeros: the process numbers of pods are of no use outside of them."""
        return (0,) * self._count

    @property
    def pending(self) -> tuple[str, ...]:
        """The reasons why pods are not placed, or cannot start yet; empty if all run."""
        return tuple(self._pending)

    def close(self, within_s: float) -> None:
        """End all of them; those that have not ended in time are killed."""
        self._closing.set()
        self._pods.close(within_s)

    def _run(self) -> None:
        try:
            self._follow()
        except Exception as error:
            log.exception("the pods of the parameter servers cannot be followed")
            if not self._closing.is_set():
                # Whichever is lost, all of them are started again.
                self._on_end(0, f"cannot be followed: {type(error).__name__}: {error}")

    def _follow(self) -> None:
        self._end_former()
        for number in range(self._count):
            if not self._closing.is_set():
                self._pods.start(WorkerId(number), 0)
        while not self._closing.is_set():
            for seen in self._pods.observe(1.0):
                if self._closing.is_set():
                    return
                match seen:
                    case InstanceExited():
                        how = describe_exit(seen.exit_code, seen.signal, seen.cause)
                        self._on_end(seen.worker, f"ended: {how}")
                    case InstanceNotStarted(worker, reason):
                        self._on_end(worker, f"could not be started: {reason}")
                    case InstancePending(worker, reason, detail) if detail:
                        self._pending[worker] = f"{reason}: {detail}"
                        log.warning("server %d waits: %s: %s", worker, reason, detail)
                    case _:
                        self._pending[seen.worker] = ""
                        log.info("server %d is %s", seen.worker, getattr(seen, "instance", "made"))

    def _end_former(self) -> None:
        """They hold the shards of an earlier incarnation, and refuse this one."""
        former = self._pods.adopt()
        for found in former:
            self._pods.kill(found.worker)
        left = {found.instance for found in former}
        deadline = time.monotonic() + _FORMER_S
        while left and time.monotonic() < deadline:
            for seen in self._pods.observe(1.0):
                if isinstance(seen, InstanceExited):
                    left.discard(seen.instance)
