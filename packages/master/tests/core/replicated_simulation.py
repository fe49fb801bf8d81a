"""The world of ``simulation`` with workers that train in step, and hold the values themselves."""

from __future__ import annotations

from dataclasses import dataclass, replace

from simulation import Plane, Process, World, count_records

from edl_master.core import effects as fx
from edl_master.core import events as ev
from edl_master.core.generations import VersionOrigin
from edl_master.core.identifiers import AppliedCount, HeldLease, TaskType, Token, Version
from edl_master.core.replica_events import (
    CountReplicaStep,
    GenerationBegun,
    GenerationRequested,
    GroupLeft,
    ReplicaClaim,
    ReplicaStep,
    RollBack,
    StepsCounted,
    StepsReported,
    StepsWanted,
    StoreValues,
    ValuesRequested,
    ValuesSent,
)
from edl_master.core.succession import Holding

History = tuple[ReplicaStep, ...]
"""The steps that have made some values."""


@dataclass
class ReplicatedPlane(Plane):
    """The counted steps, and the values in the store."""

    history: History = ()
    values: History = ()

    def count(self, step: CountReplicaStep) -> None:
        """Count a step, in which each minibatch is the next one of its task."""
        assert step.version == self.version + 1
        for claim in step.claims:
            count = self.counts.get(claim.lease.task, AppliedCount())
            assert claim.minibatch == count.minibatches, f"{claim} follows {count}"
            self.counts[claim.lease.task] = AppliedCount(
                count.minibatches + 1, count.records + claim.records
            )
        self.version, self.history = step.version, (*self.history, step.claims)

    def check_values(self) -> None:
        """Make sure that the store has the values of what is counted."""
        assert self.values == self.history, "values and counts differ"


@dataclass
class Member:
    """A process as a member of the group; see ``replica_member.Member``."""

    begun: GenerationBegun | None = None
    history: History | None = None
    counted: int = 0
    origins: tuple[tuple[Version, VersionOrigin], ...] = ()
    incarnation: str = ""
    wanted: Version | None = None
    """The version after which the master wants to know the steps."""
    ended: bool = False
    stopped: bool = False
    tells_all: bool = False
    aside: History | None = None
    patience: int = 200
    """Turns for which it waits for the group when it leaves."""

    @property
    def lacks_values(self) -> bool:
        """Whether it has not got the values that its generation begins with."""
        version = self.begun.generation.version if self.begun else 0
        return self.history is None or len(self.history) < version

    def fetch(self, history: History) -> None:
        """Use the values that its generation begins with."""
        assert self.begun is not None
        self.history = history
        self.origins = ((self.begun.generation.version, self.begun.origin),)

    def add(self, step: ReplicaStep) -> None:
        """Apply a step of its generation."""
        assert self.history is not None
        assert self.begun is not None
        self.history = (*self.history, step)
        origin = VersionOrigin(self.incarnation, self.begun.generation.number)
        if self.origins[-1][1] != origin:
            self.origins = (*self.origins, (Version(len(self.history)), origin))

    def forget_until(self, saved: Version | None) -> None:
        """Forget steps that are saved."""
        known = [o for first, o in self.origins if saved is not None and first <= saved]
        if known and saved is not None:
            self.origins = ((saved, known[-1]), *(e for e in self.origins if e[0] > saved))

    @property
    def holding(self) -> Holding | None:
        """The values that it names to a new master."""
        if self.history is None or not self.origins:
            return None
        return Holding(Version(len(self.history)), self.origins)

    def meet(self) -> None:
        """Stop, as there is another master."""
        self.begun, self.counted, self.aside, self.wanted = None, 0, None, None
        self.ended = self.stopped = self.tells_all = False


class ReplicatedWorld(World):
    """Plays one replicated job to its end."""

    plane: ReplicatedPlane
    replicated = True

    def prepare(self) -> None:
        """Add the members, and what they share."""
        self.plane = ReplicatedPlane(self.settings.minibatch_size)
        self.members: dict[str, Member] = {}
        self.slots: dict[tuple[str, int, int], dict[int, ReplicaClaim | None]] = {}
        self.sent: dict[tuple[int, int], History] = {}
        self.skips: dict[Token, int] = {}
        """Minibatches that were applied before, by the token of a lease."""
        self.lost = False
        self.masters = 0

    # --- the master ------------------------------------------------------------------------

    def carry_out(self, effect: fx.Effect) -> None:
        """Carry out an effect that only replicated jobs have, or check another one."""
        match effect:
            case fx.LeaseGranted(task=task, token=token):
                self.skips[token] = self.plane.counts.get(task, AppliedCount()).minibatches
            case CountReplicaStep():
                self.plane.count(effect)
                self._train(effect)
            case StoreValues(worker, version):
                self.plane.values = self.sent[worker, version]
                self.plane.check_values()
            case fx.FreezeParameters() | fx.WriteSnapshot() | fx.WriteCheckpoint():
                self.plane.check_values()
            case RollBack():
                self.lost = True
            case _:
                pass

    def _train(self, step: CountReplicaStep) -> None:
        for claim in step.claims:
            task = claim.lease.task
            round_ = self.job._components.workflow.make_round(task.round)
            assert round_.partition is not None
            ranges = round_.partition.ranges(task.number)
            numbers = [(r.file, record) for r in ranges for record in range(r.start, r.stop)]
            at = claim.minibatch * self.settings.minibatch_size
            for file, record in numbers[at : at + self.settings.minibatch_size]:
                self.plane.trained[(task.round, file, record)] += 1

    def restart_master(self) -> None:
        """Let another master go on, with what members still hold."""
        for member in self.members.values():
            member.meet()
        self.sent.clear()
        self.lost = False
        self.masters += 1
        self.settings = replace(self.settings, incarnation=f"{self.masters:04}")
        super().restart_master()

    def turn(self) -> None:
        """Let something happen; if the values are gone, the master goes back to its snapshot."""
        super().turn()
        if self.lost and self.end is None:
            self.happened["RolledBack"] += 1
            self.restart_master()

    # --- workers ---------------------------------------------------------------------------

    def _member(self, process: Process) -> Member:
        return self.members.setdefault(process.instance, Member())

    def _act(self, process: Process) -> None:
        leaves = process.told_to_leave and process.registered and not process.silent
        if leaves and not process.stuck and self._leave(process):
            return
        if process.ready and not (process.silent or process.stuck) and self.random.random() < 0.5:
            self._take_part(process)
        else:
            super()._act(process)

    def _leave(self, process: Process) -> bool:
        """Return whether a process that leaves still waits for the group."""
        member = self._member(process)
        member.patience -= 1
        if member.begun is None or member.patience < 0 or self.job._phases.final:
            return False
        if process.leases:
            held = tuple(HeldLease(lease.task, lease.token) for lease in process.leases)
            if self._send(ev.LeasesReturned(process.worker, held, "asked", True)) is not None:
                process.leases.clear()
        else:
            self._send(ev.LeasesReturned(process.worker, (), "asked", True))
        self._take_part(process)
        return True

    def _take_part(self, process: Process) -> None:
        """Do one thing as a member of the group."""
        member = self._member(process)
        if member.aside is not None and self.random.random() < 0.3:
            self._send_values(process, member)
        elif member.begun is not None and member.stopped and self.random.random() < 0.3:
            self._report(process, member)  # whether all is wanted of it comes with an answer
        elif member.begun is None or member.stopped:
            after = member.begun.generation.number if member.begun else 0
            steps, wanted = (), member.wanted
            if wanted is not None and member.history is not None:
                steps, member.wanted = member.history[wanted:], None
            asked = GenerationRequested(
                process.worker, process.instance, after, member.holding, steps
            )
            for answer in self._send(asked) or ():
                self._take_answer(process, member, answer)
        elif member.lacks_values and not member.ended:
            self._fetch(process, member)
        elif member.ended or self.random.random() < 0.3:
            self._report(process, member)
        else:
            self._step(process, member)

    def _take_answer(self, process: Process, member: Member, answer: fx.Effect) -> None:
        match answer:
            case StepsWanted(after):
                member.wanted = after
            case GenerationBegun(generation, leases, next_token):
                member.begun, member.ended, member.stopped = answer, False, False
                if member.incarnation != self.settings.incarnation:
                    member.incarnation = self.settings.incarnation
                    if process.worker not in generation.sources:
                        member.history = None
                member.tells_all = False
                if process.worker in generation.sources:
                    assert member.history is not None
                    assert len(member.history) == generation.version
                valid = {held.token: done for held, done in leases}
                void = {
                    lease.token
                    for lease in process.leases
                    if lease.token < next_token and lease.token not in valid
                }
                self._drop(process, void)
                self.skips |= valid
                if process.leases and process.leases[0].token in valid:
                    process.index = valid[process.leases[0].token]
                if generation.saves and generation.sources[:1] == (process.worker,):
                    member.aside = member.history
            case ValuesRequested():
                assert member.history is not None
                member.aside = member.history
            case GroupLeft():
                member.begun = None

    def _fetch(self, process: Process, member: Member) -> None:
        """Get the values that the generation begins with."""
        assert member.begun is not None
        generation = member.begun.generation
        if not generation.sources:
            if len(self.plane.values) == generation.version:
                member.fetch(self.plane.values)
            else:
                present = self.job._components.replication._group.generation
                assert present != generation, "the store has other values than it should"
        for other in self.processes:
            theirs = self._member(other)
            is_source = other.worker in generation.sources and theirs.begun is not None
            if is_source and theirs.begun.generation == generation and theirs.history:
                member.fetch(theirs.history[: generation.version])
        if member.lacks_values:
            self._report(process, member)
        elif generation.saves and generation.members[0] == process.worker:
            member.aside = member.history

    def _step(self, process: Process, member: Member) -> None:
        """Write what this member adds to the next step, or take the step if it is complete."""
        assert member.begun is not None
        assert member.history is not None
        generation = member.begun.generation
        at = member.incarnation, generation.number, len(member.history)
        here = self.slots.setdefault(at, {})
        if process.worker not in here:
            claim = self._claim(process)
            if claim is not None or any(other is not None for other in here.values()):
                here[process.worker] = claim
        elif len(here) == len(generation.members):
            step = tuple(claim for _, claim in sorted(here.items()) if claim is not None)
            member.add(step)
            mine = here[process.worker]
            if mine is not None and [mine.lease.token] == [x.token for x in process.leases[:1]]:
                process.index = mine.minibatch + 1
                self.kills = 0

    def _claim(self, process: Process) -> ReplicaClaim | None:
        if not process.leases:
            return None
        lease = process.leases[0]
        if lease.task.type is not TaskType.TRAINING or process.index >= self._minibatches(lease):
            return None
        size = self.settings.minibatch_size
        records = min(size, count_records(lease) - process.index * size)
        held = HeldLease(lease.task, lease.token)
        return ReplicaClaim(process.worker, held, process.index, 1, records, 1.0)

    def _report(self, process: Process, member: Member) -> None:
        assert member.begun is not None
        history = member.history
        steps = () if history is None else history[min(member.counted, len(history)) :]
        if not member.tells_all:
            steps = tuple(tuple(c for c in s if c.worker == process.worker) for s in steps)
        report = StepsReported(
            process.worker,
            member.begun.generation.number,
            None if history is None else Version(len(history)),
            steps,
            stopped=member.ended,
            complete=member.tells_all,
        )
        for answer in self._send(report) or ():
            if isinstance(answer, StepsCounted):
                member.stopped = member.ended
                member.counted = answer.counted
                member.forget_until(answer.saved)
                member.ended = member.ended or answer.ended
                member.tells_all = member.tells_all or answer.all_wanted
                if answer.lost:
                    member.begun = member.history = member.aside = None
                    member.stopped = member.ended = False

    def _send_values(self, process: Process, member: Member) -> None:
        assert member.aside is not None
        values, member.aside = member.aside, None
        self.sent[process.worker, len(values)] = values
        if self._send(ValuesSent(process.worker, Version(len(values)))) is None:
            member.aside = values  # it does not know whether they have arrived

    def _skip(self, lease: fx.LeaseGranted) -> int:
        return self.skips[lease.token]

    def _save(self) -> str:
        return super()._save() if self.plane.values == self.plane.history else self.saved

    def _push(self, process: Process, *, quietly: bool = False) -> None:
        """Train in step instead."""
        if not quietly:
            self._take_part(process)
