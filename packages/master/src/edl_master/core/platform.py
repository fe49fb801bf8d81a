"""The port through which a job gets bodies: processes of this machine, containers, or pods.

An adapter starts, stops and watches bodies, and tells what it sees as facts. It decides
nothing: whether a worker gets another body is the job's decision. Every adapter passes
``tests/conformance/platform_suite.py`` as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from edl_master.core.events import InstanceExited, InstanceNotStarted
from edl_master.core.identifiers import InstanceId, WorkerId


@dataclass(frozen=True, slots=True)
class InstanceStarted:
    """A body runs now. Its worker has yet to register."""

    worker: WorkerId
    attempt: int
    body: InstanceId


@dataclass(frozen=True, slots=True)
class LiveInstance:
    """A body that was found alive: started by an earlier incarnation of the master."""

    worker: WorkerId
    attempt: int
    body: InstanceId


Observation = InstanceStarted | InstanceExited | InstanceNotStarted


class Platform(Protocol):
    """Starts and stops bodies, and tells when they start and end.

    A worker may have more than one body for a while: one that is leaving, and the next one.
    All methods may be called from any thread, and none but ``observe`` and ``close`` waits.
    """

    def start(self, worker: WorkerId, attempt: int) -> None:
        """Start a body for a worker.

        Told exactly once by ``observe``: as InstanceStarted, or as InstanceNotStarted. Every body
        that started is followed by exactly one InstanceExited, whatever ended it.

        An adapter may also raise what stands in the way of every body, such as a full disk.
        """

    def stop(self, worker: WorkerId, grace_s: float) -> None:
        """Ask all bodies of a worker to leave, and kill those that are there after ``grace_s``.

        Their exits are not preemptions. A worker without a body is no error.
        """

    def kill(self, worker: WorkerId) -> None:
        """End all bodies of a worker at once. Their exits are not preemptions."""

    def observe(self, timeout_s: float) -> tuple[Observation, ...]:
        """What happened since the last call, oldest first; waits at most ``timeout_s`` for it.

        Empty when nothing happened, and at once after ``close``.
        """

    def adopt(self) -> tuple[LiveInstance, ...]:
        """Take over the bodies that an earlier incarnation of the master left alive.

        From then on they are stopped, killed and observed like those that ``start`` made; how
        one ends may be unknown, and it then counts as preempted. Bodies that ended meanwhile
        are cleaned up and not told.
        """

    def close(self, grace_s: float) -> None:
        """End every body, and return when none is left: leave within ``grace_s``, then kill.

        May be called again. Exits seen meanwhile are still told by ``observe``.
        """
