"""Generations of a replica group, and what the group decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from edl_master.core.identifiers import Version, WorkerId

Claim = TypeVar("Claim")
"""What a member has added to a step. The group does not look inside."""

Step: TypeAlias = Mapping[WorkerId, Claim]
"""What the members have added to a step, or what is known of that."""


class NotAMember(RuntimeError):
    """The caller is no member of the present generation: its values must not be used further."""


@dataclass(frozen=True, slots=True, order=True)
class VersionOrigin:
    """The generation in which a version was made: equal ones at one version mean equal histories.

    Attributes:
        incarnation: of the master that began the generation; those of a job sort by their time.
        number: of the generation; 0: the version is that of the initial values.
    """

    incarnation: str
    number: int


@dataclass(frozen=True, slots=True)
class Inheritance:
    """The values of an earlier master's workers that a new group begins with.

    Attributes:
        version: of the values.
        origin: of this version.
        holders: workers that have these values; none: the store has them.
        joining: the other workers that have asked for a generation.
    """

    version: Version
    origin: VersionOrigin
    holders: tuple[WorkerId, ...]
    joining: tuple[WorkerId, ...]


@dataclass(frozen=True, slots=True)
class Saving:
    """Values that a member has been asked for, or has sent.

    Attributes:
        worker: the member.
        version: of the values; no later step counts before the store has them.
        origin: of this version.
        finishes: they are those of a generation that finishes the training.
        is_sent: whether they have been sent.
    """

    worker: WorkerId
    version: Version
    origin: VersionOrigin
    finishes: bool = False
    is_sent: bool = False


@dataclass(frozen=True, slots=True)
class Generation:
    """A list of members, which stays the same as long as the generation lasts.

    Attributes:
        number: counts generations.
        members: in the order of their ranks.
        version: at which the generation begins.
        sources: the members that have the values of this version; empty: the parameter store has
            them.
        saves: the first member sends the values of this version to the store.
        finishes: training is over, so the average that an optimizer keeps becomes the values.
    """

    number: int
    members: tuple[WorkerId, ...]
    version: Version
    sources: tuple[WorkerId, ...]
    saves: bool = False
    finishes: bool = False


@dataclass(frozen=True, slots=True)
class CountStep(Generic[Claim]):
    """Count the minibatches of the step that made this version: it cannot get lost any more.

    The step is complete, in the order of the workers' numbers.
    """

    version: Version
    step: Step[Claim]


@dataclass(frozen=True, slots=True)
class ValuesSaved:
    """The store can have the values of the version that counts now, as ``save`` has asked.

    Attributes:
        version: the version that counts.
        worker: has sent the values; None: the store has them already.
        finishes: they are those of a generation that finishes the training.
    """

    version: Version
    worker: WorkerId | None
    finishes: bool = False


@dataclass(frozen=True, slots=True)
class SaveValues:
    """Have a member that has stopped send its values: it leaves, and no other has them."""

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


@dataclass(frozen=True, slots=True)
class ExpelMember:
    """Stop a member that another one cannot reach: the group goes on without it."""

    worker: WorkerId
    peer: WorkerId


GroupEffect: TypeAlias = (
    CountStep[Claim]
    | ValuesSaved
    | SaveValues
    | EndGeneration
    | BeginGeneration
    | ReleaseLeases
    | LoseValues
    | ExpelMember
)
