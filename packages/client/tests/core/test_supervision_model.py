"""The protocol of docs/adr/0016, explored: after every death, freeze and thaw the job comes back.

The model uses the decisions of the product: ``Supervision`` for the supervisor, and ``remedy`` for
whoever looks at a supervisor. Processes, locks and files are modelled. All states that faults can
reach are visited breadth-first; from each of them the processes that still run must bring the job
back without a further fault, in whatever order they act.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import permutations

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
from edl_proto.local.supervision import FROZEN_S, Remedy, remedy

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


@dataclass(frozen=True, slots=True)
class World:
    """One state of a job: its processes, and what is on disk.

    Attributes:
        supervisor: None if there is none; its times are relative to the present.
        supervisor_frozen: whether it is stopped.
        masters: at most one of them holds the directory.
        worker: the phase of one worker, which stands for all; None if there is none.
        stop_recorded: a stop was acknowledged, and therefore recorded.
        state: the job's state on disk.
    """

    supervisor: Supervision | None = None
    supervisor_frozen: bool = False
    masters: tuple[MasterProcess, ...] = ()
    worker: str | None = None
    worker_frozen: bool = False
    stop_recorded: bool = False
    state: str = RUNNING

    @property
    def is_over(self) -> bool:
        return self.state != RUNNING

    @property
    def holder(self) -> MasterProcess | None:
        return next((master for master in self.masters if master.holds), None)

    @property
    def anybody_runs(self) -> bool:
        """A master that will find the directory taken does not count: it only ends."""
        return (
            (self.supervisor is not None and not self.supervisor_frozen)
            or any(not m.frozen and (m.holds or self.holder is None) for m in self.masters)
            or (self.worker is not None and not self.worker_frozen)
        )

    @property
    def is_well(self) -> bool:
        """Served and supervised, or over with nothing left behind."""
        if self.is_over:
            # What is frozen ends when it is thawed. A supervisor stays with its master, which may
            # keep the status page.
            gone = all(master.frozen for master in self.masters) and (
                self.worker is None or self.worker_frozen
            )
            stays = self.supervisor_frozen or self.masters != ()
            return gone and (self.supervisor is None or stays)
        served = self.holder is not None and self.holder.phase == SERVING
        served = served and self.holder is not None and not self.holder.frozen
        return served and self.supervisor is not None and not self.supervisor_frozen

    def with_master(self, old: MasterProcess, new: MasterProcess | None) -> World:
        masters = list(self.masters)
        masters.remove(old)
        masters += [new] if new else []
        return replace(self, masters=tuple(sorted(masters)))


# --- what the processes do ---------------------------------------------------------------------


@cache
def supervisor_acts(world: World) -> World:
    """Observe until there is something to do, at most for longer than a master may be silent."""
    if world.supervisor is None or world.supervisor_frozen:
        return world
    now = 0.0
    while now < SILENCE_S + 2:
        holder = world.holder
        has_sign = holder is not None and not holder.frozen
        seen = Observation(
            is_wanted=True,
            is_over=world.is_over,
            has_master=holder is not None,
            life_sign=int(now / OBSERVED_EVERY_S) if has_sign else -1,
        )
        assert world.supervisor is not None
        state, decisions = world.supervisor.observe(seen, now)
        world = replace(world, supervisor=state)
        for decision in decisions:
            world = carry_out(world, decision)
        if decisions or has_sign:
            break
        now += OBSERVED_EVERY_S
    return normal(world)


def carry_out(world: World, decision: Decision | GiveUp) -> World:
    match decision:
        case Decision.START_MASTER:
            assert world.holder is None, "a second master beside one that holds the directory"
            assert not any(master.is_child for master in world.masters), "one child at a time"
            born = MasterProcess(NEW, frozen=False, is_child=True)
            return replace(world, masters=tuple(sorted((*world.masters, born))))
        case Decision.END_MASTER:
            # Its child, or else the process that holds the directory.
            children = [master for master in world.masters if master.is_child]
            for master in children or [m for m in world.masters if m.holds]:
                world = killed(world, master)
            return world
        case Decision.END_WORKERS:
            return replace(world, worker=None, worker_frozen=False)
        case Decision.LEAVE:
            assert world.holder is None, "a supervisor leaves a master behind"
            return replace(world, supervisor=None)
        case GiveUp():
            raise AssertionError("no master is given up whose predecessors worked")


def master_acts(world: World) -> World:
    """Each master goes on by one phase: locks the directory, listens, works, ends the job."""
    for master in world.masters:
        if master.frozen:
            continue
        if master.phase == NEW:
            if world.holder is not None or world.is_over:
                return exited(world, master)
            return world.with_master(master, replace(master, phase=STARTING))
        if master.phase == STARTING:
            return world.with_master(master, replace(master, phase=SERVING))
        if world.is_over:
            return exited(world, master)
        if world.stop_recorded:
            return replace(world, state=CANCELLED, worker=None, worker_frozen=False)
        if world.worker is None or world.worker_frozen:
            return replace(world, worker=LOADING, worker_frozen=False)
    return world


def exited(world: World, master: MasterProcess) -> World:
    """A master ends by itself; a running supervisor learns of its own child at once."""
    world = world.with_master(master, None)
    if not master.is_child or world.supervisor is None:
        return world
    return replace(world, supervisor=replace(world.supervisor, master=Master.NONE))


def job_ends(world: World) -> World:
    """All records are trained."""
    holder = world.holder
    if holder is None or holder.frozen or holder.phase != SERVING or world.worker != READY:
        return world
    if world.stop_recorded or world.worker_frozen or world.is_over:
        return world
    return replace(world, state=SUCCEEDED, worker=None)


def worker_acts(world: World) -> World:
    """Go on by one phase, and look at the supervisor; loading or not makes no difference."""
    if world.worker is None or world.worker_frozen:
        return world
    if world.is_over and (world.supervisor is None or world.holder is None):
        return replace(
            world, worker=None
        )  # with a frozen supervisor: after a minute without a master
    return replace(looks(world), worker=READY)


def looks(world: World) -> World:
    """What workers and clients do about the supervisor; a frozen one has been silent for long."""
    chosen = remedy(
        is_wanted=True,
        is_over=world.is_over,
        is_held=world.supervisor is not None,
        silent_s=FROZEN_S + 1 if world.supervisor_frozen else 0.0,
    )
    match chosen:
        case Remedy.NOTHING:
            return world
        case Remedy.START:
            return replace(world, supervisor=Supervision(), supervisor_frozen=False)
        case Remedy.KILL:
            return orphaned(world)


def orphaned(world: World) -> World:
    """The supervisor is killed; its master, if there is one, works on."""
    masters = sorted(replace(master, is_child=False) for master in world.masters)
    return replace(world, supervisor=None, supervisor_frozen=False, masters=tuple(masters))


ACTS: tuple[Callable[[World], World], ...] = (supervisor_acts, master_acts, worker_acts)


# --- faults and commands -----------------------------------------------------------------------


def faults(world: World) -> Iterator[World]:
    """Everything that may happen at any moment, with whatever came before."""
    if world.supervisor is not None:
        yield orphaned(world)
        yield replace(world, supervisor_frozen=not world.supervisor_frozen)
    for master in set(world.masters):
        yield killed(world, master)
        yield world.with_master(master, replace(master, frozen=not master.frozen))
    if world.worker is not None:
        yield replace(world, worker=None, worker_frozen=False)
        yield replace(world, worker_frozen=not world.worker_frozen)
    yield replace(orphaned(world), masters=(), worker=None, worker_frozen=False)


def killed(world: World, master: MasterProcess) -> World:
    """A master is killed, or ends by SIGTERM, which keeps the state: the same in this model.

    A supervisor that is frozen meanwhile finds the exit status when it is thawed.
    """
    world = world.with_master(master, None)
    if not master.is_child or world.supervisor is None:
        return world
    seen = Observation(
        is_wanted=True,
        is_over=world.is_over,
        has_master=world.holder is not None,
        life_sign=-2,
        exit=MasterExit(START_FAILURE_S, 9),
    )
    state, decisions = replace(world.supervisor, observed_at=None).observe(seen, 0.0)
    world = replace(world, supervisor=state)
    for decision in decisions:
        world = carry_out(world, decision)
    return normal(world)


def commands(world: World) -> Iterator[World]:
    """What clients do: look at the job, and stop it while a master answers."""
    yield looks(world)
    holder = world.holder
    if holder is not None and holder.phase == SERVING and not holder.frozen and not world.is_over:
        yield replace(world, stop_recorded=True)


def normal(world: World) -> World:
    """Forget what cannot matter any more, so that the number of states is finite."""
    if world.supervisor is None:
        return world
    state = replace(
        world.supervisor,
        started_at=0.0,
        life_sign=-3,
        alive_at=0.0,
        observed_at=None,
        retry_at=0.0,
        policy=RestartPolicy(),
    )
    return replace(world, supervisor=state)


# --- the exploration ---------------------------------------------------------------------------


def successors(world: World) -> Iterator[World]:
    for act in ACTS:
        yield act(world)
    yield job_ends(world)
    yield from faults(world)
    yield from commands(world)


def reachable() -> set[World]:
    """All states of a job that a client has just submitted."""
    first = looks(World())
    seen, queue = {first}, deque([first])
    while queue:
        for world in successors(queue.popleft()):
            # Two masters at once are enough: the third would be one of these again.
            if world not in seen and len(world.masters) <= 2:
                seen.add(world)
                queue.append(world)
    return seen


def calmly(world: World, order: tuple[Callable[[World], World], ...]) -> World:
    """Let the processes act in turn until nothing changes any more."""
    for _ in range(12):
        before = world
        for act in order:
            world = act(world)
        if world == before:
            break
    return world


WORLDS = reachable()


def test_the_exploration_reaches_what_it_is_about() -> None:
    assert len(WORLDS) > 1_000
    assert any(len(world.masters) == 2 for world in WORLDS)
    assert any(world.supervisor and world.supervisor.master is Master.ORPHAN for world in WORLDS)
    assert {world.state for world in WORLDS} == {RUNNING, CANCELLED, SUCCEEDED}


def test_never_do_two_masters_hold_one_job() -> None:
    assert all(sum(master.holds for master in world.masters) <= 1 for world in WORLDS)


def test_while_any_process_runs_the_job_comes_back() -> None:
    """Frozen processes stay frozen: nobody waits for a thaw.

    A master that was frozen before it locked the directory, and lost its supervisor since, is
    known to nobody. It stands in nobody's way, and ends when it is thawed.
    """
    for world in WORLDS:
        if not world.anybody_runs:
            continue
        for order in permutations(ACTS):
            end = calmly(world, order)
            assert without_unknown(end).is_well, f"{world}\nends as\n{end}"


def test_without_the_workers_some_jobs_would_not_come_back() -> None:
    """So their part in the protocol is needed."""
    indifferent = (supervisor_acts, master_acts)
    assert any(
        world.anybody_runs and not world.is_over and not calmly(world, indifferent).is_well
        for world in WORLDS
    )


def without_unknown(world: World) -> World:
    unknown = [m for m in world.masters if m.phase == NEW and m.frozen and not m.is_child]
    for master in unknown:
        world = world.with_master(master, None)
    return world


def test_status_revives_a_job_without_processes() -> None:
    for world in WORLDS:
        if world.anybody_runs or world.is_over:
            continue
        # A frozen supervisor is killed by the first look and replaced by the second.
        end = calmly(looks(looks(world)), ACTS)
        assert without_unknown(end).is_well, f"{world}\nends as\n{end}"


def test_an_acknowledged_stop_is_never_lost() -> None:
    for world in WORLDS:
        if not world.stop_recorded:
            continue
        assert world.state != SUCCEEDED
        if world.state == RUNNING and world.anybody_runs:
            for order in permutations(ACTS):
                assert calmly(world, order).state == CANCELLED


def test_only_a_stop_cancels_a_job() -> None:
    """Neither SIGTERM to the master nor to everything does."""
    assert all(world.stop_recorded for world in WORLDS if world.state == CANCELLED)
