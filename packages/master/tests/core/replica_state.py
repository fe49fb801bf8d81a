"""One state of everything in the model of replicated training."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
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

    def copy(self) -> Self:
        """Return a copy that shares nothing that changes."""
        new = copy.copy(self)
        new.budget = copy.copy(self.budget)
        new.group = copy.copy(self.group)
        for name, value in vars(self.group).items():
            if isinstance(value, dict | set):
                setattr(new.group, name, value.copy())
        new.group.steps = {made: dict(step) for made, step in self.group.steps.items()}
        new.members = {number: copy.copy(member) for number, member in self.members.items()}
        new.held = dict(self.held)
        new.slots = {at: dict(slots) for at, slots in self.slots.items()}
        new.sent = dict(self.sent)
        if self.succession is not None:
            new.succession = copy.copy(self.succession)
            new.succession._offers = dict(self.succession._offers)
        return new
