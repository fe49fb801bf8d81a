"""The replica group: the workers that train one model in step, and the steps that count.

Every member holds all values of the model. A step takes the group from one version to the next:
the members add up their gradients (all-reduce), and each applies the sum. The master takes no part
in a step. Members report the steps that they have made, and the group decides which of them count.

A generation is a fixed list of members. To change the list, because a worker joins, leaves or dies,
the master ends the generation: its members stop, and report how far they have come. The values of
the farthest member go on, and with them the steps that made them. So a step in which a worker died
is either in the values of a member that goes on, or in none. (Group communication calls this a
flush, and the property virtual synchrony.)

**A step counts when all members have it**: from then on no death of some members can take it back.
Each member that has a step reports what it has added. When all have stopped, and one is gone or
lacks the last step, to which it may have added, one that has this step is asked for all.
A worker that is gone keeps its leases until nothing is open that it may have been part of.

Nothing here waits, locks, knows the time or has any values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from edl_master.core.accusations import Accusation, find_unreachable
from edl_master.core.generations import (
    BeginGeneration,
    Claim,
    CountStep,
    EndGeneration,
    ExpelMember,
    Generation,
    GroupEffect,
    Inheritance,
    LoseValues,
    NotAMember,
    ReleaseLeases,
    SaveValues,
    Saving,
    Step,
    ValuesSaved,
    VersionOrigin,
)
from edl_master.core.group_progress import GroupProgress
from edl_master.core.identifiers import Version, WorkerId


class ReplicaGroup(GroupProgress[Claim]):
    """The members, their versions, and the steps of one job.

    Args:
        version: of the values that the store begins with.
        origin: of this version; None: these are the initial values.
        incarnation: of the master.
        inherited: what an earlier master's workers have; ``flush`` has them begin.
    """

    def __init__(
        self,
        version: Version,
        origin: VersionOrigin | None = None,
        incarnation: str = "",
        inherited: Inheritance | None = None,
    ) -> None:
        super().__init__(version, origin or VersionOrigin(incarnation, 0), incarnation)
        self._number = 0
        self._accusations: tuple[Accusation, ...] = ()
        self._leaving: set[WorkerId] = set()
        self._joining: dict[WorkerId, None] = {}  # in order
        self._gone: dict[WorkerId, None] = {}  # whose leases cannot be released yet
        self._wants_save = False
        self._finishes = False  # until values of a generation that finishes are saved
        self._saving: Saving | None = None
        self._is_paused = False  # the store's values are those of what counts, until ``proceed``
        if inherited is not None:
            self.counted, self.origin = inherited.version, inherited.origin
            self._reached.update(dict.fromkeys(inherited.holders, inherited.version))
            self._stopped.update(inherited.holders)
            self._joining.update(dict.fromkeys(inherited.joining))

    def must_send(self, worker: WorkerId) -> bool:
        """Return whether the values of a member that has stopped are waited for."""
        has_stopped = self.is_ending and worker in self._stopped
        return has_stopped and self._awaits_values_of(worker)

    def must_report_all(self, worker: WorkerId) -> bool:
        """Return whether a member that has stopped is to report what all have added to steps."""
        if len(self._stopped) < len(self._reached) or not self._lacks_claims():
            return False
        farthest = self._find_farthest()
        return worker == next(w for w, version in self._reached.items() if version == farthest)

    # --- membership ------------------------------------------------------------------------

    def join(self, worker: WorkerId) -> list[GroupEffect[Claim]]:
        """Admit a worker that is ready to train; repeated calls change nothing."""
        if worker in self._reached or worker in self._joining or self.is_lost:
            return []
        self._joining[worker] = None
        return self._change_members()

    def leave(self, worker: WorkerId) -> list[GroupEffect[Claim]]:
        """Have a member leave with the end of this generation, in which it takes part."""
        if worker not in self._reached:
            return self.lose(worker)
        if worker in self._leaving:
            return []
        self._leaving.add(worker)
        return self._change_members()

    def lose(self, worker: WorkerId) -> list[GroupEffect[Claim]]:
        """Go on without a worker: it is dead, or will not be listened to any more."""
        if self.is_lost:
            return []
        if worker not in self._reached:
            self._joining.pop(worker, None)
            return [] if worker in self._gone else [ReleaseLeases(worker)]
        del self._reached[worker]
        self._stopped.discard(worker)
        self._complete.discard(worker)
        self._leaving.discard(worker)
        self._gone[worker] = None
        self._give_up_saving(self._awaits_values_of(worker))
        return self._change_members()

    def flush(self) -> list[GroupEffect[Claim]]:
        """Have a new generation begin: what its members must know has changed."""
        return [] if self.is_lost else self._change_members()

    def _change_members(self) -> list[GroupEffect[Claim]]:
        return self._end() + self._continue()

    def _end(self) -> list[GroupEffect[Claim]]:
        if self.generation is None or self.is_ending:
            return []
        self.is_ending = True
        return [EndGeneration(self.generation)] if self._reached else []

    # --- progress --------------------------------------------------------------------------

    def report(
        self,
        worker: WorkerId,
        generation: int,
        version: Version | None,
        steps: Sequence[Step[Claim]] = (),
        *,
        stopped: bool = False,
        complete: bool = False,
        unreachable: WorkerId | None = None,
    ) -> list[GroupEffect[Claim]]:
        """Record how far a member has come.

        Args:
            generation: number of the generation that it is in.
            version: that its values have; None: it has not received any.
            steps: the last ones that made this version, with all that do not count yet.
            stopped: it makes no further step in this generation.
            complete: the steps have what all members have added, not only this one.
            unreachable: the member because of which it has stopped.

        Raises:
            NotAMember: the generation is over, or the worker was lost.
        """
        present = self.generation
        if present is None or generation != present.number or worker not in self._reached:
            raise NotAMember(f"worker {worker} is no member of the present generation")
        if version is not None and not self._is_replaced:
            reached = self._reached[worker] = Version(max(self._reached[worker] or 0, version))
            if reached > self.counted:
                self._behind.discard(worker)
            for made, step in enumerate(steps, version - len(steps) + 1):
                if made > self.counted:
                    self.steps.setdefault(Version(made), {}).update(step)
        effects: list[GroupEffect[Claim]] = []
        if stopped:
            if unreachable is not None and worker not in self._stopped:
                self._accusations += ((worker, unreachable),)
            self._stopped.add(worker)
            if complete:
                self._complete.add(worker)
            effects = self._end()  # a peer may be gone, and be missed later
        return effects + self.proceed()

    def proceed(self) -> list[GroupEffect[Claim]]:
        """Count what can count now.

        After ``ValuesSaved`` nothing counts before the next call, so that the owner of the group
        can save what counts together with the values.
        """
        if self.is_lost:
            return []
        self._is_paused = False
        present, effects = self.generation, self._count()
        if self._wants_save and self._saving is None and present is not None:
            effects += self._change_members()
        if not self.is_ending:
            effects += self._release_gone()
            if self._leaving and present is not None and self._have_all_begun(present):
                effects += self._change_members()
        return effects + self._continue()

    # --- values for the store --------------------------------------------------------------

    def save(self, *, finishes: bool = False) -> list[GroupEffect[Claim]]:
        """Have the values of a version sent to the store; ``ValuesSaved`` says when it has them.

        Args:
            finishes: training is over, see ``Generation``.
        """
        if self.is_lost:
            return []
        if not finishes and self.counted == self.stored and self._saving is None:
            return self._tell_saved(None)
        self._finishes = self._finishes or finishes
        if self._saving is not None and not finishes:
            return []  # those that are being sent will do
        self._wants_save = True
        return self._change_members()

    def receive_values(self, worker: WorkerId, version: Version) -> bool:
        """Record that a worker has sent its values; return whether they are wanted."""
        if (saving := self._saving) is None or (worker, version) != (saving.worker, saving.version):
            return False
        self._saving = replace(saving, is_sent=True)
        return True

    def replace_values(self, version: Version) -> list[GroupEffect[Claim]]:
        """Have the members take other values from the store: those of a version without a step."""
        self.counted = self.stored = version
        self.stored_origin = VersionOrigin(self._incarnation, self._number + 1)
        self._reached = dict.fromkeys(self._reached)
        self.steps = {}
        self._is_replaced = True
        return self._change_members()

    def _count(self) -> list[GroupEffect[Claim]]:
        """Count the steps that all members have."""
        if self._is_paused:
            return []
        effects: list[GroupEffect[Claim]] = []
        common, saving = self._find_common(), self._saving
        while self.counted < common and not (saving and saving.version == self.counted):
            self.counted = Version(self.counted + 1)
            step = dict(sorted(self.steps.pop(self.counted).items()))
            effects.append(CountStep(self.counted, step))
        if effects:
            self._compare()
        if saving is not None and saving.is_sent and self.counted == saving.version:
            self._finishes = self._finishes and not saving.finishes
            self.stored_origin, self._saving = saving.origin, None
            effects += self._tell_saved(saving.worker, finishes=saving.finishes)
        return effects

    def _tell_saved(
        self, worker: WorkerId | None, *, finishes: bool = False
    ) -> list[GroupEffect[Claim]]:
        self.stored, self._is_paused = self.counted, True
        return [ValuesSaved(self.counted, worker, finishes)]

    def _release_gone(self) -> list[GroupEffect[Claim]]:
        if not self.is_settled:
            return []  # a step that they have taken part in may count, or not
        gone, self._gone = self._gone, {}
        return [ReleaseLeases(worker) for worker in gone]

    # --- generations -----------------------------------------------------------------------

    def _continue(self) -> list[GroupEffect[Claim]]:
        """Begin the next generation if all members of this one have stopped."""
        runs = self.generation is not None and not self.is_ending
        if self.is_lost or runs or len(self._stopped) < len(self._reached):
            return []
        if accused := [pair for pair in self._accusations if set(pair) <= set(self._reached)]:
            self._accusations = ()
            worker, peer = find_unreachable(accused, list(self._reached))
            return [ExpelMember(worker, peer), *self.lose(worker)]
        if self._lacks_claims():
            return []
        farthest = self._find_farthest()
        version = self.counted if farthest is None else farthest
        self.steps = {made: step for made, step in self.steps.items() if made <= version}
        if self._saving is not None and self._saving.version > version:
            self._give_up_saving(True)
        if farthest is None and self.stored != self.counted:
            self.is_lost = True
            return [LoseValues()]
        effects = self._count()
        holders = [worker for worker, reached in self._reached.items() if reached == version]
        staying = [worker for worker in self._reached if worker not in self._leaving]
        if holders and not staying and not self._joining and len(holders) == len(self._reached):
            if self.stored < version:
                return effects + self._save_last(holders[0], version)
        elif holders and not set(holders) & set(staying):
            staying = list(self._reached)  # they leave once others have the values
        return effects + self._begin(version, holders, staying)

    def _save_last(self, worker: WorkerId, version: Version) -> list[GroupEffect[Claim]]:
        """Ask a member that has stopped for its values."""
        if self._saving is not None and self._saving.version == version:
            return []
        self._saving = Saving(worker, version, self._find_origin(version))
        return [SaveValues(worker)]

    def _begin(
        self, version: Version, holders: Sequence[WorkerId], staying: Sequence[WorkerId]
    ) -> list[GroupEffect[Claim]]:
        """Begin a generation of the members that stay, sources first, and those that join."""
        self.origin = self._find_origin(version)
        for worker in self._reached:
            if worker not in staying:
                self._gone[worker] = None
        ranked = sorted(staying, key=lambda worker: worker not in holders)
        members = (*ranked, *self._joining)
        sources = tuple(worker for worker in ranked if worker in holders)
        self._reached = {worker: self._reached.get(worker) for worker in members}
        self._leaving &= set(members)
        self._compare()
        self._joining, self._stopped, self._complete, self._accusations = {}, set(), set(), ()
        self.is_ending = self._is_replaced = False
        if not members:
            self.generation = None
            return [*self._release_gone(), *self._say_saved()]
        self._number += 1
        saving = self._saving
        self._give_up_saving(bool(saving and not saving.is_sent and saving.worker not in members))
        saves = self._wants_save and self._saving is None and bool(sources or self._finishes)
        if saves:
            self._wants_save = False
            self._saving = Saving(members[0], version, self.origin, self._finishes)
        self.generation = Generation(self._number, members, version, sources, saves, self._finishes)
        effects = [*self._count(), *self._release_gone(), BeginGeneration(self.generation)]
        return effects if sources else [*effects, *self._say_saved()]

    def _awaits_values_of(self, worker: WorkerId) -> bool:
        saving = self._saving
        return saving is not None and saving.worker == worker and not saving.is_sent

    def _give_up_saving(self, is_in_vain: bool) -> None:
        """Have another member send its values if the one that was asked to will not."""
        if is_in_vain and self._saving is not None:
            self._saving, self._wants_save = None, True

    def _say_saved(self) -> list[GroupEffect[Claim]]:
        """Say so if the store has the values that are wanted already."""
        if not self._wants_save or self._finishes or self.counted != self.stored:
            return []
        self._wants_save = False
        return self._tell_saved(None)
