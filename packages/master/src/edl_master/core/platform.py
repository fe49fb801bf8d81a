"""The port through which a job gets instances: processes of this machine, or pods.

An adapter starts, stops and watches instances, and reports what it sees as events. It decides
nothing: whether a worker gets another instance is the job's decision. Every adapter passes
``tests/conformance/platform_suite.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from edl_master.core.events import (
    InstanceExited,
    InstanceInspected,
    InstanceNotStarted,
    InstancePending,
)
from edl_master.core.identifiers import InstanceId, WorkerId


@dataclass(frozen=True, slots=True)
class InstanceStarted:
    """An instance runs now. Its worker has yet to register."""

    worker: WorkerId
    attempt: int
    instance: InstanceId


@dataclass(frozen=True, slots=True)
class LiveInstance:
    """An instance that was found alive: started by an earlier incarnation of the master."""

    worker: WorkerId
    attempt: int
    instance: InstanceId


Observation = (
    InstanceStarted | InstanceExited | InstanceNotStarted | InstancePending | InstanceInspected
)


class Platform(Protocol):
    """Starts and stops instances, and reports when they start and end.

    A worker may have more than one instance for a while: one that is leaving, and the next one.
    All methods may be called from any thread, and none but ``observe`` and ``close`` waits.
    """

    def start(self, worker: WorkerId, attempt: int) -> None:
        """Start an instance for a worker.

        ``observe`` reports it exactly once: as InstanceStarted, or as InstanceNotStarted. Exactly
        one InstanceExited follows every InstanceStarted, whatever ended the instance. Before, any
        number of InstancePending may say what it waits for.

        An adapter may also raise an error that prevents every instance, such as a full disk.
        """

    def inspect(self, worker: WorkerId) -> None:
        """Find out what is known of a worker's instances that run, such as the ends of their logs.

        ``observe`` reports it as one InstanceInspected for each. Nothing is reported of a worker
        that has none.
        """

    def stop(self, worker: WorkerId, grace_s: float) -> None:
        """Ask all instances of a worker to leave, and kill those that remain after ``grace_s``.

        Their exits are not preemptions. A worker without an instance is no error.
        """

    def kill(self, worker: WorkerId) -> None:
        """End all instances of a worker at once. Their exits are not preemptions."""

    def observe(self, timeout_s: float) -> tuple[Observation, ...]:
        """Return what happened since the last call, oldest first; wait at most ``timeout_s``.

        Empty when nothing happened, and without waiting after ``close``.
        """

    def adopt(self) -> tuple[LiveInstance, ...]:
        """Take over the instances that an earlier incarnation of the master left alive.

        From then on they are stopped, killed and observed like those that ``start`` made; how
        one ends may be unknown, and it then counts as preempted. Instances that ended meanwhile
        are cleaned up and not reported.
        """

    def close(self, grace_s: float) -> None:
        """End every instance, and return when none is left: leave within ``grace_s``, then kill.

        May be called again. ``observe`` still reports the exits that are seen meanwhile.
        """
