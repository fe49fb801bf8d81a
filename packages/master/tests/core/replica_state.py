"""One state of everything in the model of replicated training."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Self

from replica_member import Added, Budget, Member

from edl_master.core.generations import VersionOrigin
from edl_master.core.identifiers import Version
from edl_master.core.replica_group import ReplicaGroup
from edl_master.core.succession import Succession


@dataclass(slots=True)
class WorldState:
    """One state of everything.

    Attributes:
        group: the code that is tried.
        records: those of the job.
        held: records that each worker has leased.
        deaths: of workers that the master has not noticed.
        slots: what is added to a step, by incarnation, generation and version.
        ledger: the steps that count.
        sent: values that members have sent to the store.
        snapshot: ledger and values as they were saved together last.
        origin: of the snapshot.
        incarnation: of the master.
        succession: what workers of the master before hold; None: it is decided.
        former: what that master had counted, and the members of its last generation.
        group_key: what makes two groups the same; None: it has to be found again.
    """

    records: tuple[int, ...]
    budget: Budget
    group: ReplicaGroup[int | None] = field(
        default_factory=lambda: ReplicaGroup(Version(0), incarnation="0")
    )
    members: dict[int, Member] = field(default_factory=dict)
    held: dict[int, tuple[int, ...]] = field(default_factory=dict)
    deaths: tuple[int, ...] = ()
    slots: dict[tuple[int, int, int], dict[int, int | None]] = field(default_factory=dict)
    ledger: tuple[Added, ...] = ()
    sent: dict[int, tuple[Added, ...]] = field(default_factory=dict)
    snapshot: tuple[Added, ...] = ()
    origin: VersionOrigin = field(default_factory=lambda: VersionOrigin("0", 0))
    incarnation: int = 0
    succession: Succession | None = None
    former: tuple[tuple[Added, ...], frozenset[int]] = ((), frozenset())
    workers: int = 0
    sizes: tuple[tuple[tuple[int, int], int], ...] = ()
    group_key: object = None

    def copy(self, *, shares_group: bool = False) -> Self:
        """Return a copy that shares nothing that changes.

        Args:
            shares_group: what happens next changes nothing of the group.
        """
        new = type(self)(*_fields(self))
        if not shares_group:
            new.group, new.group_key = _copy_group(self.group), None
        new.members = {number: member.copy() for number, member in self.members.items()}
        new.held = self.held.copy()
        new.slots = {at: slots.copy() for at, slots in self.slots.items()}
        new.sent = self.sent.copy()
        if self.succession is not None:
            new.succession = copy.copy(self.succession)
            new.succession._offers = self.succession._offers.copy()
        return new


_fields = attrgetter(*WorldState.__slots__)
_COLLECTIONS = [
    name for name, value in vars(ReplicaGroup(Version(0))).items() if isinstance(value, dict | set)
]


def _copy_group(group: ReplicaGroup[int | None]) -> ReplicaGroup[int | None]:
    new = ReplicaGroup.__new__(ReplicaGroup)
    fields = vars(new)
    fields.update(vars(group))
    for name in _COLLECTIONS:
        fields[name] = fields[name].copy()
    new.steps = {made: step.copy() for made, step in group.steps.items()}
    return new
