"""A model of the protocol of docs/adr/0016: processes, locks, files, faults and requests.

The decisions are the product's own: ``Supervision`` for a supervisor, and ``remedy`` for a
client that looks at one. Each write of a file is a step of its own: a power cut may come between
any two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

from edl.core.supervision import (
    SILENCE_S,
    START_FAILURE_S,
    Decision,
    GiveUp,
    Master,
    MasterExit,
    Observation,
    RestartPolicy,
    Supervision,
)
from edl_runtime.local.supervision import FROZEN_S, SupervisorAction, supervisor_action

OBSERVED_EVERY_S = 0.5
NEW, STARTING, SERVING = "new", "starting", "serving"
"""A new master has not locked the directory yet."""

LOADING, READY = "loading", "ready"
RUNNING, CANCELLED, SUCCEEDED = "running", "cancelled", "succeeded"


@dataclass(frozen=True, slots=True, order=True)
class MasterProcess:
    phase: str
    frozen: bool
    is_child: bool
    """Of the supervisor that runs; otherwise the master is an orphan."""

    @property
    def holds(self) -> bool:
        return self.phase != NEW


@dataclass(frozen=True)
class World:
    """One state of a job: its processes, and what is on disk. It computes its hash only once.

    Attributes:
        supervisor: the one that holds the lock; its times are relative to the present.
        supervisor_frozen: whether it is stopped.
        contenders: supervisors that were started and did not try the lock yet: which are frozen.
        masters: at most one of them holds the directory.
        worker: the phase of one worker, which stands for all; None if there is none.
        starts_workers: False while the job is scaled to none, or waits after crashes.
        wanted: ``supervisor.json`` says how; ``edl delete`` and ``edl stop --now`` empty it first.
        stop_recorded: a stop was acknowledged, and therefore recorded.
        end: how the job ends, as ``end.json`` says; None while it goes on.
        cleared: what the job does not need after its end was removed.
        state: the job's state on disk.
    """

    supervisor: Supervision | None = None
    supervisor_frozen: bool = False
    contenders: tuple[bool, ...] = ()
    masters: tuple[MasterProcess, ...] = ()
    worker: str | None = None
    worker_frozen: bool = False
    starts_workers: bool = True
    wanted: bool = True
    stop_recorded: bool = False
    end: str | None = None
    cleared: bool = False
    state: str = RUNNING

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(self.__dict__.values()))

    def but(self, **changes: Any) -> World:
        """Do what ``dataclasses.replace`` does, in a part of its time."""
        other = object.__new__(World)
        other.__dict__.update(self.__dict__, **changes)
        other.__dict__.pop("_hash", None)
        return other

    @property
    def is_over(self) -> bool:
        return self.state != RUNNING

    @property
    def holder(self) -> MasterProcess | None:
        return next((master for master in self.masters if master.holds), None)

    @property
    def any_process_runs(self) -> bool:
        """A process that will find its lock taken does not count: it only ends."""
        return (
            (self.supervisor is not None and not self.supervisor_frozen)
            or (self.supervisor is None and False in self.contenders)
            or any(not m.frozen and (m.holds or self.holder is None) for m in self.masters)
            or (self.worker is not None and not self.worker_frozen)
        )

    @property
    def is_well(self) -> bool:
        """Served and supervised, or over with nothing left behind."""
        if self.is_over:
            # What is frozen ends when it is thawed. A supervisor stays with its master, which may
            # keep the job's page.
            gone = all(master.frozen for master in self.masters) and (
                self.worker is None or self.worker_frozen
            )
            stays = self.supervisor_frozen or self.masters != ()
            return self.cleared and gone and (self.supervisor is None or stays)
        served = self.holder is not None and self.holder.phase == SERVING
        served = served and self.holder is not None and not self.holder.frozen
        return served and self.supervisor is not None and not self.supervisor_frozen

    def with_master(self, old: MasterProcess, new: MasterProcess | None) -> World:
        masters = list(self.masters)
        masters.remove(old)
        masters += [new] if new else []
        return self.but(masters=tuple(sorted(masters)))

    def with_contender(self, frozen: bool, instead_of: bool | None = None) -> World:
        contenders = list(self.contenders)
        if instead_of is not None:
            contenders.remove(instead_of)
        return self.but(contenders=tuple(sorted([*contenders, frozen])))

    def without_contender(self, frozen: bool) -> World:
        contenders = list(self.contenders)
        contenders.remove(frozen)
        return self.but(contenders=tuple(contenders))


# --- what the processes do ---------------------------------------------------------------------


@cache
def supervisor_acts(world: World) -> World:
    """Try the lock; or observe until there is something to do, longer than masters are silent."""
    if False in world.contenders:
        world = world.without_contender(False)
        if world.supervisor is None and world.wanted:
            world = world.but(supervisor=Supervision(), supervisor_frozen=False)
        return world
    if world.supervisor is None or world.supervisor_frozen:
        return world
    now = 0.0
    while now < SILENCE_S + 2:
        holder = world.holder
        has_sign = holder is not None and not holder.frozen
        seen = Observation(
            is_wanted=world.wanted,
            is_over=world.is_over,
            has_master=holder is not None,
            heartbeat=int(now / OBSERVED_EVERY_S) if has_sign else -1,
        )
        assert world.supervisor is not None
        state, decisions = world.supervisor.observe(seen, now)
        world = world.but(supervisor=state)
        for decision in decisions:
            world = carry_out(world, decision)
        if decisions or has_sign:
            break
        now += OBSERVED_EVERY_S
    return normal(world)


def carry_out(world: World, decision: Decision | GiveUp) -> World:
    match decision:
        case Decision.START_MASTER:
            assert world.wanted, "a master of a job that is being deleted"
            assert world.holder is None, "a second master beside one that holds the directory"
            assert not any(master.is_child for master in world.masters), "one child at a time"
            born = MasterProcess(NEW, frozen=False, is_child=True)
            return world.but(masters=tuple(sorted((*world.masters, born))))
        case Decision.END_MASTER:
            # Its child, or else the process that holds the directory.
            children = [master for master in world.masters if master.is_child]
            for master in children or [m for m in world.masters if m.holds]:
                world = kill(world, master)
            return world
        case Decision.END_WORKERS:
            return world.but(worker=None, worker_frozen=False)
        case Decision.LEAVE:
            assert not world.wanted or world.holder is None, "a supervisor leaves a master behind"
            return orphan(world)
        case GiveUp():
            raise AssertionError("no master is given up whose predecessors worked")


@cache
def master_acts(world: World) -> World:
    """Each master does its next step: locks the directory, listens, works, ends the job."""
    for master in world.masters:
        if master.frozen:
            continue
        if master.phase == NEW:
            if world.holder is not None or world.is_over or not world.wanted:
                return exit_master(world, master)
            return world.with_master(master, replace(master, phase=STARTING))
        world = looks(world)
        master = world.holder or master  # its supervisor may have been killed
        if world.end is not None:
            return concludes(world, master)
        if master.phase == STARTING:
            return world.with_master(master, replace(master, phase=SERVING))
        if world.stop_recorded:
            return world.but(end=CANCELLED, worker=None, worker_frozen=False)
        if world.starts_workers and (world.worker is None or world.worker_frozen):
            return world.but(worker=LOADING, worker_frozen=False)
    return world


def concludes(world: World, master: MasterProcess) -> World:
    """The next step of the end, by the master that decided it or by a later one."""
    assert world.end is not None
    if not world.cleared:
        return world.but(cleared=True)
    if not world.is_over:
        return world.but(state=world.end)
    return exit_master(world, master)


def exit_master(world: World, master: MasterProcess) -> World:
    """A master ends by itself; a running supervisor learns of its own child at once."""
    world = world.with_master(master, None)
    if not master.is_child or world.supervisor is None:
        return world
    return world.but(supervisor=replace(world.supervisor, master=Master.NONE))


def job_ends(world: World) -> World:
    """All records are trained."""
    holder = world.holder
    if holder is None or holder.frozen or holder.phase != SERVING or world.worker != READY:
        return world
    if world.stop_recorded or world.worker_frozen or world.end is not None:
        return world
    return world.but(end=SUCCEEDED, worker=None)


@cache
def worker_acts(world: World) -> World:
    """Go on by one phase, and look at the supervisor; loading or not makes no difference."""
    if world.worker is None or world.worker_frozen:
        return world
    if world.is_over and (world.supervisor is None or world.holder is None):
        # With a frozen supervisor: after a minute without a master.
        return world.but(worker=None)
    return looks(world).but(worker=READY)


def looks(world: World, *, clock_was_set: bool = False) -> World:
    """Yield what a client may do about the supervisor; a frozen one has been silent for long."""
    chosen = supervisor_action(
        is_wanted=world.wanted,
        is_over=world.is_over,
        is_held=world.supervisor is not None,
        silent_s=FROZEN_S + 1 if world.supervisor_frozen or clock_was_set else 0.0,
    )
    match chosen:
        case SupervisorAction.START if False not in world.contenders:
            return world.with_contender(False)
        case SupervisorAction.KILL:
            return orphan(world)
        case _:
            return world


def orphan(world: World) -> World:
    """The supervisor is gone; its master, if there is one, works on."""
    masters = sorted(replace(master, is_child=False) for master in world.masters)
    return world.but(supervisor=None, supervisor_frozen=False, masters=tuple(masters))


ACTS: tuple[Callable[[World], World], ...] = (supervisor_acts, master_acts, worker_acts)


# --- faults and requests -----------------------------------------------------------------------


def faults(world: World) -> Iterator[World]:
    """Everything that may happen at any moment, with whatever came before."""
    if world.supervisor is not None:
        yield orphan(world)
        yield world.but(supervisor_frozen=not world.supervisor_frozen)
    for frozen in set(world.contenders):
        yield world.without_contender(frozen)
        yield world.with_contender(not frozen, instead_of=frozen)
    for master in set(world.masters):
        yield kill(world, master)
        yield world.with_master(master, replace(master, frozen=not master.frozen))
    if world.worker is not None:
        yield world.but(worker=None, worker_frozen=False)
        yield world.but(worker_frozen=not world.worker_frozen)
    yield looks(world, clock_was_set=True)
    yield power_cut(world)


def power_cut(world: World) -> World:
    """No process is left; what a step has written is on the disk."""
    world = orphan(world).but(masters=(), contenders=())
    return world.but(worker=None, worker_frozen=False)


def kill(world: World, master: MasterProcess) -> World:
    """A master is killed, or ends by SIGTERM, which keeps the state: the same in this model.

    A supervisor that is frozen meanwhile finds the exit status when it is thawed.
    """
    world = world.with_master(master, None)
    if not master.is_child or world.supervisor is None:
        return world
    seen = Observation(
        is_wanted=world.wanted,
        is_over=world.is_over,
        has_master=world.holder is not None,
        heartbeat=-2,
        exit=MasterExit(START_FAILURE_S, 9),
    )
    state, decisions = replace(world.supervisor, observed_at=None).observe(seen, 0.0)
    world = world.but(supervisor=state)
    for decision in decisions:
        world = carry_out(world, decision)
    return normal(world)


def requests(world: World) -> Iterator[World]:
    """Yield what users may do: look at the job, stop, scale and delete it.

    The other steps of a deletion are kills; the client may be killed between any two of them.
    """
    yield looks(world)
    yield world.but(wanted=False)
    holder = world.holder
    if holder is None or holder.phase != SERVING or holder.frozen or world.end is not None:
        return
    yield world.but(stop_recorded=True)
    yield world.but(starts_workers=not world.starts_workers)


def normal(world: World) -> World:
    """Forget what cannot matter any more, so that the number of states is finite."""
    if world.supervisor is None:
        return world
    state = replace(
        world.supervisor,
        started_at=0.0,
        heartbeat=-3,
        alive_at=0.0,
        observed_at=None,
        retry_at=0.0,
        policy=RestartPolicy(),
    )
    return world.but(supervisor=state)


def successors(world: World) -> Iterator[World]:
    for act in ACTS:
        yield act(world)
    yield job_ends(world)
    yield from faults(world)
    yield from requests(world)
