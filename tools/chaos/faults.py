"""The table of faults, and the schedule that a seed draws from it.

To add a fault, add a row to ``FAULTS``. A new role is a function that finds its processes in a
job; a new action is a function that does something to a job or to these processes.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from chaos.job import WORKERS, Job

MOST_SERVERS = 2
INDEXES = math.lcm(WORKERS, MOST_SERVERS)


@dataclass(frozen=True)
class Role:
    """Whom a fault can hit.

    Attributes:
        name: for reports.
        pids: the processes of a job that have the role now; the index chooses a member.
        members: how many members a job has; None for a role without numbers.
        leaves_none: whether no process of the job may be left, so that only a client can revive it.
    """

    name: str
    pids: Callable[[Job, int], list[int]]
    members: Callable[[Job], int] | None = None
    leaves_none: bool = False


@dataclass(frozen=True)
class Action:
    """What a fault does.

    Attributes:
        name: for reports.
        inject: does it, to these processes of a job, for so many seconds; must not block.
        lasts: whether it ends by itself after these seconds.
    """

    name: str
    inject: Callable[[Job, list[int], float], None]
    lasts: bool = False


@dataclass(frozen=True)
class FaultKind:
    """A row of the table.

    Attributes:
        weight: how often it happens, in relation to the others.
        durations_s: from which the duration is drawn.
    """

    role: Role
    action: Action
    weight: int
    durations_s: tuple[float, ...] = (0.3, 1.0, 2.5, 6.0)

    @property
    def name(self) -> str:
        return f"{self.role.name} {self.action.name}"


@dataclass(frozen=True)
class Fault:
    """One fault of a schedule.

    Attributes:
        after_s: since the fault before.
        kind: of the table.
        for_s: how long it lasts, if it does.
        index: which member of the role, modulo how many there are.
    """

    after_s: float
    kind: FaultKind
    for_s: float
    index: int

    def concerns(self, job: Job) -> bool:
        """Whether anybody in this job ever has the role."""
        members = self.kind.role.members
        return members is None or members(job) > 0

    def member(self, job: Job) -> int:
        members = self.kind.role.members
        return 0 if members is None else self.index % members(job)

    def targets(self, job: Job) -> list[int]:
        """Processes to hit; none if nobody has that role now."""
        return self.kind.role.pids(job, self.member(job))

    def inject(self, job: Job, targets: list[int]) -> None:
        self.kind.action.inject(job, targets, self.for_s)
        if self.kind.role.leaves_none:
            job.follow()

    def describe(self, job: Job) -> str:
        role, action = self.kind.role, self.kind.action
        whom = role.name if role.members is None else f"{role.name} {self.member(job)}"
        return f"{action.name} {whom}" + (f" for {self.for_s:g} s" if action.lasts else "")


def _kill(job: Job, pids: list[int], for_s: float) -> None:
    _signal(pids, signal.SIGKILL)


def _term(job: Job, pids: list[int], for_s: float) -> None:
    _signal(pids, signal.SIGTERM)


def _freeze(job: Job, pids: list[int], for_s: float) -> None:
    _signal(pids, signal.SIGSTOP)
    threading.Timer(for_s, lambda: _signal(pids, signal.SIGCONT)).start()


def _slow(job: Job, pids: list[int], for_s: float) -> None:
    """Let them run a tenth of the time."""

    def slow() -> None:
        until = time.monotonic() + for_s
        while time.monotonic() < until:
            _signal(pids, signal.SIGSTOP)
            time.sleep(0.09)
            _signal(pids, signal.SIGCONT)
            time.sleep(0.01)

    threading.Thread(target=slow, daemon=True).start()


def _signal(pids: list[int], what: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, what)


WORKER = Role("worker", lambda job, index: job.worker_pids(index), lambda job: WORKERS)
SERVER = Role("server", lambda job, index: job.server_pids(index), lambda job: job.servers)
MASTER = Role("master", lambda job, _: job.master_pids())
SUPERVISOR = Role("supervisor", lambda job, _: job.supervisor_pids())
BOTH = Role("master and supervisor", lambda job, _: job.master_pids() + job.supervisor_pids())
EVERYTHING = Role(
    "everything",  # but the client: as at the end of a session
    lambda job, _: job.master_pids() + job.supervisor_pids() + job.worker_pids(),
    leaves_none=True,
)
CLIENT = Role("client", lambda job, _: job.client_pids(), leaves_none=True)

KILL = Action("kill", _kill)
TERM = Action("term", _term)
FREEZE = Action("freeze", _freeze, lasts=True)
SLOW = Action("slow", _slow, lasts=True)

# The last is longer than the master waits for a parameter server.
_SERVER_DURATIONS_S = (0.3, 1.0, 2.5, 6.0, 20.0)

FAULTS = (
    FaultKind(WORKER, KILL, 5),
    FaultKind(WORKER, TERM, 2),
    FaultKind(WORKER, FREEZE, 4),
    FaultKind(WORKER, SLOW, 2),
    FaultKind(MASTER, KILL, 4),
    FaultKind(MASTER, TERM, 1),
    FaultKind(MASTER, FREEZE, 2),
    FaultKind(SUPERVISOR, KILL, 2),
    FaultKind(SUPERVISOR, FREEZE, 1),
    FaultKind(BOTH, KILL, 2),
    FaultKind(BOTH, FREEZE, 1),
    FaultKind(EVERYTHING, TERM, 1),
    FaultKind(CLIENT, KILL, 2),
    FaultKind(SERVER, KILL, 3, _SERVER_DURATIONS_S),
    FaultKind(SERVER, FREEZE, 3, _SERVER_DURATIONS_S),
    FaultKind(SERVER, SLOW, 1, _SERVER_DURATIONS_S),
)


def schedule(seed: int, mean_s: float) -> Iterator[Fault]:
    """The endless schedule of a seed, one fault every ``mean_s`` on average."""
    random = Random(seed)
    weights = [kind.weight for kind in FAULTS]
    while True:
        kind = random.choices(FAULTS, weights)[0]
        yield Fault(
            after_s=random.expovariate(1 / mean_s),
            kind=kind,
            for_s=random.choice(kind.durations_s),
            index=random.randrange(INDEXES),
        )
