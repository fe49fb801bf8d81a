"""A model of workers that train in step, to try every order in which things can happen.

Members write what they add to a step into slots that all members of the generation see. Once all
slots are filled, each of them can take the step, as with memory that they share.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from replica_member import Action, Added, Member
from replica_state import WorldState
from replica_succession import begin_restored, may_begin, restart_master

from edl_master.core.generations import (
    BeginGeneration,
    CountStep,
    ExpelMember,
    GroupEffect,
    LoseValues,
    NotAMember,
    ReleaseLeases,
    SaveValues,
    ValuesSaved,
)
from edl_master.core.identifiers import Version, WorkerId

_COSTS = {name: name for name in ("kill", "fence", "leave", "restart", "accuse")}
_COSTS |= {"start": "join", "want_values": "save", "flush": "flush"}
_LOCAL = {"begin", "fetch", "add", "take", "end", "kill"}
"""What happens without the master."""


class World(WorldState):
    """A state in which things can happen."""

    __slots__ = ()

    # --- what can happen -------------------------------------------------------------------

    def actions(self) -> Iterator[Action]:
        """Yield what can happen without a fault."""
        for worker in self.deaths:
            yield "notice", worker
        if self.group._is_paused:
            yield "tick", 0
        if may_begin(self):
            yield "decide", 0
        for worker, member in self.members.items():
            for name in (
                "join",
                "begin",
                "fetch",
                "add",
                "take",
                "report",
                "stop",
                "tell",
                "send",
                "end",
            ):
                if getattr(self, f"can_{name}")(worker, member):
                    yield name, worker

    def faults(self) -> Iterator[Action]:
        """Yield what can go wrong, or is asked for, while the budget lasts."""
        for worker, member in self.members.items():
            if self.budget.kill:
                yield "kill", worker
            known = WorkerId(worker) in self.group._reached and not member.is_fenced
            if self.budget.fence and known:
                yield "fence", worker
            if self.budget.accuse and not member.stopped and known and self._is_present(member):
                yield "accuse", worker
            if self.budget.leave and known and not member.leaves:
                yield "leave", worker
        if self.budget.join:
            yield "start", self.workers
        if self.budget.save and self.group.generation is not None:
            yield "want_values", 0
        if self.budget.flush and self.group.generation is not None:
            yield "flush", 0
        if self.budget.restart:
            yield "restart", 0

    def copy_for(self, action: Action) -> World:
        """Return a copy in which something can happen without a change of this state."""
        return self.copy(shares_group=action[0] in _LOCAL)

    def act(self, action: Action) -> None:
        """Do something that can happen."""
        name, worker = action
        if name in _COSTS:
            cost = _COSTS[name]
            self.budget = self.budget._replace(**{cost: getattr(self.budget, cost) - 1})
        getattr(self, f"do_{name}")(worker)

    def do_start(self, worker: int) -> None:
        self.members[worker] = Member(self.incarnation)
        self.workers += 1

    def can_join(self, worker: int, member: Member) -> bool:
        if member.incarnation != self.incarnation:
            return True  # as a member of the group before, it makes steps until then
        if member.is_fenced or member.leaves:
            return False
        if self.succession is not None:
            return worker not in self.succession._offers
        return worker not in self.group._reached and worker not in self.group._joining

    def do_join(self, worker: int) -> None:
        if self.members[worker].incarnation != self.incarnation:
            self.members[worker].meet(self.incarnation)
            if self.members[worker].leaves:
                return
        if self.succession is not None:
            self.succession.offer(WorkerId(worker), self.members[worker].holding, 0.0)
            return
        self.members[worker].history = None
        self.perform(self.group.join(WorkerId(worker)))

    def do_decide(self, _: int) -> None:
        begin_restored(self)
        self.perform(self.group.flush())

    def can_begin(self, worker: int, member: Member) -> bool:
        present = self.group.generation
        return (
            present is not None
            and not member.is_fenced
            and worker in present.members
            and member.incarnation == self.incarnation
            and member.generation != present.number
        )

    def do_begin(self, worker: int) -> None:
        member = self.members[worker]
        present = self.group.generation
        assert present is not None
        member.generation, member.stopped, member.reported = present.number, False, None
        if present.saves and present.members[0] == worker:
            member.aside = present.version
        if worker in present.sources:
            assert member.history is not None
            assert len(member.history) == present.version, "a source without the values"
            member.reported = len(member.history)

    def can_fetch(self, worker: int, member: Member) -> bool:
        present = self.group.generation
        if present is None or not self._is_present(member) or worker in present.sources:
            return False
        if member.reported is not None or member.stopped or member.is_fenced:
            return False
        if not present.sources:
            return member.history is None
        if self.has_begun(member):
            return False
        return self._source(present.number, present.version) is not None

    def _source(self, generation: int, version: int) -> tuple[Added, ...] | None:
        sources = self.group.generation.sources if self.group.generation else ()
        for source in sources:
            member = self.members.get(source)
            if member is None or member.incarnation != self.incarnation:
                continue
            if member.generation == generation and member.history is not None:
                return member.history[:version]
        return None

    def do_fetch(self, worker: int) -> None:
        member, present = self.members[worker], self.group.generation
        assert present is not None
        if present.sources:
            history = self._source(present.number, present.version)
            assert history is not None
        else:
            assert len(self.snapshot) == present.version, "the store has other values"
            assert self.origin == self.group.origin, "the store has values of another origin"
            history = self.snapshot
        member.fetch(history, self.group.origin)
        member.counted = max(member.counted, self.group.counted)
        assert member.history is not None
        if any((worker, member.record) in step for step in member.history):
            member.record = None  # it had a part in a step that it has not seen the end of

    def _may_step(self, member: Member) -> bool:
        return member.generation is not None and member.history is not None and not member.stopped

    def _here(self, member: Member) -> dict[int, int | None]:
        assert member.generation is not None
        assert member.history is not None
        at = member.incarnation, member.generation, len(member.history)
        return self.slots.get(at, {})

    def has_begun(self, member: Member) -> bool:
        """Whether a member of a generation has the values that it begins with."""
        if member.incarnation != self.incarnation:
            return member.history is not None
        present = self.group.generation
        if present is None or present.number != member.generation or member.history is None:
            return member.is_fenced
        return len(member.history) >= present.version

    def can_add(self, worker: int, member: Member) -> bool:
        if not self._may_step(member) or not self.has_begun(member):
            return False
        here = self._here(member)
        if worker in here:
            return False
        is_leased = not member.is_fenced and member.incarnation == self.incarnation
        has_work = member.record is not None or (is_leased and bool(self.queue()))
        return has_work or any(record is not None for record in here.values())

    def queue(self) -> list[int]:
        """Return the records that are not counted, and that no worker holds."""
        taken = {record for step in self.ledger for _, record in step}
        taken.update(record for records in self.held.values() for record in records)
        return [record for record in self.records if record not in taken]

    def do_add(self, worker: int) -> None:
        member = self.members[worker]
        assert member.generation is not None
        assert member.history is not None
        is_leased = not member.is_fenced and member.incarnation == self.incarnation
        if member.record is None and is_leased and (queue := self.queue()):
            member.record = queue[0]
            self.held[worker] = (*self.held.get(worker, ()), queue[0])
        at = member.incarnation, member.generation, len(member.history)
        self.slots.setdefault(at, {})[worker] = member.record

    def can_take(self, worker: int, member: Member) -> bool:
        if not self._may_step(member):
            return False
        here = self._here(member)
        return worker in here and len(here) == self._size_of(member)

    def _size_of(self, member: Member) -> int:
        return dict(self.sizes)[member.incarnation, member.generation or 0]

    def do_take(self, worker: int) -> None:
        member = self.members[worker]
        step = tuple(sorted(self._here(member).items()))
        assert member.history is not None
        member.add(step)
        if (worker, member.record) in step:
            member.record = None

    def can_report(self, _: int, member: Member) -> bool:
        if not self._may_step(member) or member.incarnation != self.incarnation:
            return False
        if not member.is_fenced and not self.has_begun(member):
            return False
        return member.reported != len(member.history or ())

    def do_report(self, worker: int) -> None:
        self._report(worker)

    def _report(self, worker: int, **said: Any) -> None:
        member = self.members[worker]
        assert member.generation is not None
        history = member.history
        try:
            effects = self.group.report(
                WorkerId(worker),
                member.generation,
                None if history is None else Version(len(history)),
                member.tell(worker, complete="complete" in said),
                **said,
            )
        except NotAMember:
            del self.members[worker]  # it must not use its values, and starts again elsewhere
            assert member.is_fenced, "the master refuses a member that it has not given up"
            return
        member.reported = None if history is None else len(history)
        self.perform(effects)
        member.counted = max(member.counted, min(self.group.counted, len(history or ())))
        member.forget_until(len(self.snapshot))

    def _is_present(self, member: Member) -> bool:
        present = self.group.generation
        is_here = member.incarnation == self.incarnation
        return present is not None and present.number == member.generation and is_here

    def can_stop(self, worker: int, member: Member) -> bool:
        may = not member.stopped and not member.is_fenced
        return may and self.group.is_ending and self._is_present(member)

    def do_stop(self, worker: int) -> None:
        self.members[worker].stopped = True
        self._report(worker, stopped=True)

    def can_tell(self, worker: int, member: Member) -> bool:
        may = member.stopped and not member.is_fenced and self._is_present(member)
        return may and self.group.must_report_all(WorkerId(worker))

    def do_tell(self, worker: int) -> None:
        self._report(worker, stopped=True, complete=True)

    def do_accuse(self, worker: int) -> None:
        """Stop because the next member cannot be reached."""
        present = self.group.generation
        assert present is not None
        self.members[worker].stopped = True
        rank = present.members.index(WorkerId(worker)) + 1
        following = present.members[rank % len(present.members)]
        self._report(worker, stopped=True, unreachable=following)

    def can_send(self, _: int, member: Member) -> bool:
        has_values = member.aside is not None and len(member.history or ()) >= member.aside
        return has_values and member.incarnation == self.incarnation

    def do_send(self, worker: int) -> None:
        member = self.members[worker]
        version, member.aside = member.aside, None
        assert version is not None
        assert member.history is not None
        if self.group.receive_values(WorkerId(worker), Version(version)):
            self.sent[version] = member.history[:version]
            self.perform(self.group.proceed())

    def can_end(self, worker: int, member: Member) -> bool:
        gone = WorkerId(worker) not in self.group._reached
        return gone and (member.is_fenced or member.leaves)

    def do_end(self, worker: int) -> None:
        del self.members[worker]

    def do_want_values(self, _: int) -> None:
        self.perform(self.group.save())

    def do_flush(self, _: int) -> None:
        self.perform(self.group.flush())

    def do_tick(self, _: int) -> None:
        self.perform(self.group.proceed())

    def do_kill(self, worker: int) -> None:
        if not self.members.pop(worker).is_fenced:
            self.deaths = (*self.deaths, worker)

    def do_notice(self, worker: int) -> None:
        self.deaths = tuple(other for other in self.deaths if other != worker)
        if self.succession is not None:
            self.succession.withdraw(WorkerId(worker))
        self.perform(self.group.lose(WorkerId(worker)))

    def do_fence(self, worker: int) -> None:
        self.members[worker].is_fenced = True
        self.perform(self.group.lose(WorkerId(worker)))

    def do_leave(self, worker: int) -> None:
        self.members[worker].leaves = True
        self.perform(self.group.leave(WorkerId(worker)))

    def do_restart(self, _: int) -> None:
        restart_master(self)

    def perform(self, effects: list[GroupEffect[int | None]]) -> None:
        """Carry out what the group has decided."""
        is_saved = False
        for effect in effects:
            match effect:
                case CountStep(version, step):
                    assert not is_saved, "a step counts before the values are saved"
                    self.ledger = (*self.ledger, tuple(step.items()))
                    assert len(self.ledger) == version, "a version is missing"
                case ValuesSaved(version, worker):
                    values = self.snapshot if worker is None else self.sent[version]
                    assert values == self.ledger, "ledger and values differ"
                    self.snapshot, is_saved = self.ledger, True
                    self.origin = self.group.stored_origin
                case ReleaseLeases(worker):
                    self.held.pop(worker, None)
                    self._check_release(worker)
                case SaveValues(worker) if member := self.members.get(worker):
                    member.aside = len(member.history or ())
                case BeginGeneration(generation):
                    at = self.incarnation, generation.number
                    self.sizes = (*self.sizes, (at, len(generation.members)))
                case LoseValues():
                    self.do_restart(0)
                    return
                case ExpelMember(worker) if member := self.members.get(worker):
                    member.is_fenced = True
                case _:
                    pass  # the worker is dead, or learns it when it reports

    def _check_release(self, worker: int) -> None:
        open_ = {r for step in self.group.steps.values() for w, r in step.items() if w == worker}
        assert open_ <= {None}, "a record that may still count is given to another worker"
