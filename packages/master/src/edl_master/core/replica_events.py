"""The reports of workers that train in step, and what they are answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from edl_master.core.generations import Generation, VersionOrigin
from edl_master.core.identifiers import HeldLease, InstanceId, Token, Version, WorkerId
from edl_master.core.succession import Holding


@dataclass(frozen=True, slots=True)
class ReplicaClaim:
    """The minibatches that one member has added to a step: consecutive ones of one task.

    Attributes:
        minibatch: index of the first one in the task.
        loss: mean over the records.
    """

    worker: WorkerId
    lease: HeldLease
    minibatch: int
    minibatches: int
    records: int
    loss: float


ReplicaStep: TypeAlias = tuple[ReplicaClaim, ...]
"""What members have added to a step, in the order of their numbers."""


@dataclass(frozen=True, slots=True)
class GenerationRequested:
    """A worker wants to train in step, or has stopped and waits for the next generation.

    Answered by ``GenerationBegun``, ``ValuesRequested``, ``StepsWanted``, ``GroupLeft`` or
    ``WaitForWork``.

    Attributes:
        after: number of the last generation that it knows.
        holding: what it has from an earlier master; None: nothing.
        steps: those for which ``StepsWanted`` has asked.
    """

    worker: WorkerId
    instance: InstanceId
    after: int
    holding: Holding | None = None
    steps: tuple[ReplicaStep, ...] = ()


@dataclass(frozen=True, slots=True)
class StepsReported:
    """A member reports how far it is, see ``ReplicaGroup.report``; answered by ``StepsCounted``."""

    worker: WorkerId
    generation: int
    version: Version | None
    steps: tuple[ReplicaStep, ...] = ()
    stopped: bool = False
    unreachable: WorkerId | None = None
    cause: str = ""
    complete: bool = False


@dataclass(frozen=True, slots=True)
class ValuesSent:
    """A worker has sent its values; answered by ``ValuesAccepted``."""

    worker: WorkerId
    version: Version


ReplicaEvent: TypeAlias = GenerationRequested | StepsReported | ValuesSent


@dataclass(frozen=True, slots=True)
class GenerationBegun:
    """A generation of which the caller is a member.

    Attributes:
        leases: of the caller that are valid and older than the generation, and how many
            minibatches of their tasks are in the values that it begins with.
        next_token: leases from this token on are younger than the generation.
        learning_rate: in place of the optimizer's own; None: the optimizer's own.
        origin: of the version that it begins with.
    """

    generation: Generation
    leases: tuple[tuple[HeldLease, int], ...]
    next_token: Token
    learning_rate: float | None
    origin: VersionOrigin


@dataclass(frozen=True, slots=True)
class StepsWanted:
    """The caller is to tell all steps after this version that its values have."""

    after: Version


@dataclass(frozen=True, slots=True)
class ValuesRequested:
    """The caller leaves, and no other member has its values: it must send them."""


@dataclass(frozen=True, slots=True)
class GroupLeft:
    """The caller is no member any more, and may end."""


@dataclass(frozen=True, slots=True)
class StepsCounted:
    """The answer to a report.

    Attributes:
        counted: version of the last step that counts.
        ended: the generation has ended, or is about to: stop.
        lost: the caller is no member, and must not use its values further.
        all_wanted: report what all members have added to the steps.
        saved: version of the last snapshot; None: there is none.
    """

    counted: Version
    ended: bool
    lost: bool = False
    all_wanted: bool = False
    saved: Version | None = None


@dataclass(frozen=True, slots=True)
class ValuesAccepted:
    """Whether values that were sent are wanted."""

    accepted: bool


ReplicaAnswer: TypeAlias = (
    GenerationBegun | ValuesRequested | StepsWanted | GroupLeft | StepsCounted | ValuesAccepted
)


@dataclass(frozen=True, slots=True)
class CountReplicaStep:
    """Count the minibatches of a step, which has made this version.

    Attributes:
        inherited: the step was made under an earlier master, which may have leased its tasks.
    """

    version: Version
    claims: ReplicaStep
    inherited: bool = False


@dataclass(frozen=True, slots=True)
class StoreValues:
    """Make the values that a worker has sent those of the parameter store, at this version."""

    worker: WorkerId
    version: Version


@dataclass(frozen=True, slots=True)
class RollBack:
    """The values are gone with the workers that had them: go back to the last snapshot."""


ReplicaEffect: TypeAlias = ReplicaAnswer | CountReplicaStep | StoreValues | RollBack
