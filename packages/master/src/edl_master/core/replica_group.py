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
A worker that is gone keeps its leases until nothing is open that it may have been part of.

Nothing here waits, locks, knows the time or has any values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from edl_master.core.identifiers import Version, WorkerId

Step = TypeVar("Step")
"""The content of a step: what each member has added to it. The group does not look inside."""


class NotAMember(RuntimeError):
    """The caller is no member of the present generation: its values must not be used further."""


@dataclass(frozen=True, slots=True)
class Generation:
    """A list of members, which stays the same as long as the generation lasts.

    Attributes:
        number: counts generations.
        members: in the order of their ranks.
        version: at which the generation begins.
        sources: the members that have the values of this version; empty: the parameter store has
            them.
    """

    number: int
    members: tuple[WorkerId, ...]
    version: Version
    sources: tuple[WorkerId, ...]


@dataclass(frozen=True, slots=True)
class CountStep(Generic[Step]):
    """Count the minibatches of the step that made this version: it cannot get lost any more."""

    version: Version
    step: Step


@dataclass(frozen=True, slots=True)
class CopyLedger:
    """Copy the ledger as it is now, for the snapshot whose values a member has put aside."""

    version: Version


@dataclass(frozen=True, slots=True)
class SaveValues:
    """Have a member that has stopped put its values aside: it leaves, and no other has them."""

    worker: WorkerId


@dataclass(frozen=True, slots=True)
class EndGeneration:
    """Have the members stop, and report how far they have come."""

    generation: Generation


@dataclass(frozen=True, slots=True)
class BeginGeneration:
    """Have the members begin; those that are no sources get the values first.

    With the values they learn which steps made them: one of these may have a minibatch that they
    have added themselves, without seeing the end of the step.
    """

    generation: Generation


@dataclass(frozen=True, slots=True)
class ReleaseLeases:
    """Return what this worker holds to the queue, with the counts that it has now."""

    worker: WorkerId


@dataclass(frozen=True, slots=True)
class LoseValues:
    """The values of the present version are gone: the job goes back to its last snapshot."""


GroupEffect: TypeAlias = (
    CountStep[Step]
    | CopyLedger
    | SaveValues
    | EndGeneration
    | BeginGeneration
    | ReleaseLeases
    | LoseValues
)


class ReplicaGroup(Generic[Step]):
    """The members, their versions, and the steps of one job.

    Attributes:
        counted: the version that all counted steps make.
        stored: the version of the last snapshot, of ledger and values.
        generation: the present one; None while there are no members.
        is_ending: whether its members have been told to stop.
        is_lost: whether the values are gone; nothing else happens then.

    Args:
        version: of the snapshot that the job begins with.
    """

    def __init__(self, version: Version) -> None:
        self.counted = version
        self.stored = version
        self.generation: Generation | None = None
        self.is_ending = False
        self.is_lost = False
        self._number = 0
        self._reached: dict[WorkerId, Version | None] = {}  # of all members that are not lost
        self._stopped: set[WorkerId] = set()
        self._leaving: set[WorkerId] = set()
        self._joining: dict[WorkerId, None] = {}  # in order
        self._gone: dict[WorkerId, None] = {}  # whose leases cannot be released yet
        self._steps: dict[Version, Step] = {}  # not counted yet, by the version that they make
        self._aside: Version | None = None  # put aside by a member, and not counted yet
        self._saving: WorkerId | None = None

    # --- membership ------------------------------------------------------------------------

    def join(self, worker: WorkerId) -> list[GroupEffect[Step]]:
        """Admit a worker that is ready to train; repeated calls change nothing."""
        if worker in self._reached or worker in self._joining or self.is_lost:
            return []
        self._joining[worker] = None
        return self._change_members()

    def leave(self, worker: WorkerId) -> list[GroupEffect[Step]]:
        """Have a member leave with the end of this generation, in which it takes part."""
        if worker not in self._reached:
            return self.lose(worker)
        if worker in self._leaving:
            return []
        self._leaving.add(worker)
        return self._change_members()

    def lose(self, worker: WorkerId) -> list[GroupEffect[Step]]:
        """Go on without a worker: it is dead, or will not be listened to any more."""
        if self.is_lost:
            return []
        if worker not in self._reached:
            self._joining.pop(worker, None)
            return [] if worker in self._gone else [ReleaseLeases(worker)]
        del self._reached[worker]
        self._stopped.discard(worker)
        self._leaving.discard(worker)
        self._gone[worker] = None
        return self._change_members()

    def _change_members(self) -> list[GroupEffect[Step]]:
        effects: list[GroupEffect[Step]] = []
        if self.generation is not None and not self.is_ending:
            self.is_ending = True
            effects += [EndGeneration(self.generation)] if self._reached else []
        return effects + self._continue()

    # --- progress --------------------------------------------------------------------------

    def report(
        self,
        worker: WorkerId,
        generation: int,
        version: Version | None,
        steps: Sequence[Step] = (),
        *,
        stopped: bool = False,
        aside: Version | None = None,
    ) -> list[GroupEffect[Step]]:
        """Record how far a member has come.

        Args:
            generation: number of the generation that it is in.
            version: that its values have; None: it has not received any.
            steps: the last steps that made this version, with all that do not count yet.
            stopped: it makes no further step in this generation.
            aside: the version of the values that it has put aside for a snapshot.

        Raises:
            NotAMember: the generation is over, or the worker was lost.
        """
        present = self.generation
        if present is None or generation != present.number or worker not in self._reached:
            raise NotAMember(f"worker {worker} is no member of the present generation")
        if version is not None:
            self._reached[worker] = Version(max(self._reached[worker] or 0, version))
            for made, step in enumerate(steps, version - len(steps) + 1):
                if made > self.counted:
                    self._steps[Version(made)] = step
        if aside is not None and aside >= self.counted:
            self._aside = aside
        if stopped:
            self._stopped.add(worker)
        effects = self._count()
        if not self.is_ending:
            effects += self._release_gone()
            if self._leaving and self._is_settled(present):
                effects += self._change_members()
        return effects + self._continue()

    def on_stored(self, version: Version) -> list[GroupEffect[Step]]:
        """Record that the snapshot of a version is complete."""
        self.stored = Version(max(self.stored, version))
        return self._continue()

    def _count(self) -> list[GroupEffect[Step]]:
        """Count the steps that all members have."""
        effects = self._copy_ledger()
        versions = [version for version in self._reached.values() if version is not None]
        if self._stopped != set(self._reached) and len(versions) < len(self._reached):
            return effects  # one that has not said how far it is may lack steps of the others
        while versions and self.counted < min(versions):
            self.counted = Version(self.counted + 1)
            effects.append(CountStep(self.counted, self._steps.pop(self.counted)))
            effects += self._copy_ledger()
        return effects

    def _copy_ledger(self) -> list[GroupEffect[Step]]:
        if self._aside != self.counted:
            return []
        self._aside = None
        return [CopyLedger(self.counted)]

    def _release_gone(self) -> list[GroupEffect[Step]]:
        if self.generation is not None and self.counted < self.generation.version:
            return []  # a step that they have taken part in may count, or not
        gone, self._gone = self._gone, {}
        return [ReleaseLeases(worker) for worker in gone]

    def _is_settled(self, generation: Generation) -> bool:
        """Whether all members have the values that the generation begins with."""
        versions = self._reached.values()
        return all(version is not None and version >= generation.version for version in versions)

    # --- generations -----------------------------------------------------------------------

    def _continue(self) -> list[GroupEffect[Step]]:
        """Begin the next generation if all members of this one have stopped."""
        if self.is_lost or (self.generation is not None and not self.is_ending):
            return []
        if self._stopped != set(self._reached):
            return []
        have = [version for version in self._reached.values() if version is not None]
        version = max(have, default=self.counted)
        self._steps = {made: step for made, step in self._steps.items() if made <= version}
        if self._aside is not None and self._aside > version:
            self._aside = None
        if not have and self.stored != self.counted:
            self.is_lost = True
            return [LoseValues()]
        effects = self._count()
        holders = [worker for worker, reached in self._reached.items() if reached == version]
        staying = [worker for worker in self._reached if worker not in self._leaving]
        if holders and not staying and not self._joining and len(holders) == len(self._reached):
            if self.stored < version:
                return effects + self._save(holders[0])
        elif holders and not set(holders) & set(staying):
            staying = list(self._reached)  # they leave once others have the values
        return effects + self._begin(version, holders, staying)

    def _save(self, worker: WorkerId) -> list[GroupEffect[Step]]:
        if self._saving == worker:
            return []
        self._saving = worker
        return [SaveValues(worker)]

    def _begin(
        self, version: Version, holders: Sequence[WorkerId], staying: Sequence[WorkerId]
    ) -> list[GroupEffect[Step]]:
        """Begin a generation of the members that stay, sources first, and those that join."""
        for worker in self._reached:
            if worker not in staying:
                self._gone[worker] = None
        ranked = sorted(staying, key=lambda worker: worker not in holders)
        members = (*ranked, *self._joining)
        sources = tuple(worker for worker in ranked if worker in holders)
        self._reached = {worker: self._reached.get(worker) for worker in members}
        self._leaving &= set(members)
        self._joining, self._stopped, self._saving = {}, set(), None
        self.is_ending = False
        if not members:
            self.generation = None
            return self._release_gone()
        self._number += 1
        self.generation = Generation(self._number, members, version, sources)
        return [*self._count(), *self._release_gone(), BeginGeneration(self.generation)]
