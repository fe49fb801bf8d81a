"""The table of faults, and the schedule that a seed draws from it.

To add a fault, add a row to ``FAULTS``. A new role is a function that finds its processes in a
job; a new action (``chaos.actions``) is a function that does something to a job or to these
processes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from chaos.actions import (
    ABORT,
    DAMAGE_FILES,
    DAMAGE_SNAPSHOT,
    EDIT_CODE,
    FILL_DISK,
    FORBID_WRITING,
    FREEZE,
    KILL,
    LONG_FREEZE,
    REWRITE_DATA,
    SCALE,
    SET_CLOCK,
    SLOW,
    TERM,
    TOUCH_DATA,
    Action,
)
from chaos.clock import TEN_YEARS_S, WEEK_S
from chaos.job import WORKERS, Job

MAX_SERVERS = 2
STORM_S = 0.3
INDEXES = math.lcm(WORKERS, MAX_SERVERS)


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
        """Whether a process of this job ever has the role, and this machine can do it."""
        members = self.kind.role.members
        has_role = members is None or members(job) > 0
        return has_role and self.kind.action.is_possible(job)

    def member(self, job: Job) -> int:
        members = self.kind.role.members
        return 0 if members is None else self.index % members(job)

    def targets(self, job: Job) -> list[int]:
        """Return the processes to hit; none if no process has that role now."""
        return self.kind.role.pids(job, self.member(job))

    def inject(self, job: Job, targets: list[int]) -> None:
        self.kind.action.inject(job, targets, self.for_s)
        if self.kind.role.leaves_none:
            job.follow()

    def describe(self, job: Job) -> str:
        role, action = self.kind.role, self.kind.action
        whom = role.name if role.members is None else f"{role.name} {self.member(job)}"
        return f"{action.name} {whom}" + (f" for {self.for_s:g} s" if action.lasts else "")


WORKER = Role("worker", lambda job, index: job.worker_pids(index), lambda job: WORKERS)
SERVER = Role("server", lambda job, index: job.server_pids(index), lambda job: job.servers)
MASTER = Role("master", lambda job, _: job.master_pids())
SUPERVISOR = Role("supervisor", lambda job, _: job.supervisor_pids())
BOTH = Role("master and supervisor", lambda job, _: job.master_pids() + job.supervisor_pids())
EVERYTHING = Role(
    "everything",  # but the client: as at the end of a session
    lambda job, _: [
        *(*job.master_pids(), *job.supervisor_pids(), *job.worker_pids()),
        *(pid for server in range(job.servers) for pid in job.server_pids(server)),
    ],
    leaves_none=True,
)
JOB = Role("job", lambda job, _: job.client_pids() or job.master_pids())
CLIENT = Role("client", lambda job, _: job.client_pids(), leaves_none=True)

# Longer than a supervisor waits for a heartbeat.
_LONG_S = (32.0,)

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
    FaultKind(WORKER, LONG_FREEZE, 1, _LONG_S),
    FaultKind(MASTER, LONG_FREEZE, 1, _LONG_S),
    FaultKind(SUPERVISOR, LONG_FREEZE, 1, _LONG_S),
    FaultKind(BOTH, LONG_FREEZE, 1, _LONG_S),
    FaultKind(EVERYTHING, KILL, 1),
    FaultKind(MASTER, ABORT, 2),
    FaultKind(SERVER, ABORT, 1),
    FaultKind(MASTER, DAMAGE_SNAPSHOT, 1),
    FaultKind(EVERYTHING, DAMAGE_FILES, 1),
    FaultKind(JOB, SET_CLOCK, 2, (-TEN_YEARS_S, -3601, WEEK_S, TEN_YEARS_S)),
    FaultKind(JOB, EDIT_CODE, 1),
    FaultKind(JOB, TOUCH_DATA, 1),
    FaultKind(JOB, REWRITE_DATA, 1),
    FaultKind(JOB, SCALE, 2),
    FaultKind(JOB, FILL_DISK, 1),
    FaultKind(JOB, FORBID_WRITING, 1),
)


def schedule(
    seed: int, mean_s: float, kinds: Sequence[FaultKind] = FAULTS, storm: int = 0
) -> Iterator[Fault]:
    """The endless schedule of a seed, one fault every ``mean_s`` on average.

    Args:
        kinds: to draw from.
        storm: so many faults come ``STORM_S`` apart, and a pause after them makes up for that.
    """
    random = Random(seed)
    weights = [kind.weight for kind in kinds]
    for number in itertools.count():
        kind = random.choices(kinds, weights)[0]
        after_s = random.expovariate(1 / mean_s)
        if storm:
            after_s = STORM_S if number % storm else after_s + storm * (mean_s - STORM_S)
        yield Fault(
            after_s=after_s,
            kind=kind,
            for_s=random.choice(kind.durations_s),
            index=random.randrange(INDEXES),
        )
