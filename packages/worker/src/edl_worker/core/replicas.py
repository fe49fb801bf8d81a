"""Replicated training as its members see it: generations, and the steps that they report.

``docs/adr/0032`` describes the protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edl_worker.core.tasks import LeaseRef


@dataclass(frozen=True, slots=True)
class Part:
    """Numbers of one type that members add up.

    Attributes:
        dtype: of the numbers, such as ``float32``.
        count: how many there are.
        is_mean: the result is the mean by weight; otherwise the sum of all that have a weight.
    """

    dtype: str
    count: int
    is_mean: bool = True


@dataclass(frozen=True, slots=True)
class Claim:
    """Consecutive minibatches of one task that a member adds to a step.

    Attributes:
        minibatch: index of the first one in the task.
        loss: mean over the records.
    """

    lease: LeaseRef
    minibatch: int
    records: int
    loss: float
    minibatches: int = 1


@dataclass(frozen=True, slots=True)
class Note:
    """A message of a member to the others, which goes with its gradient.

    Attributes:
        claim: what it adds; None: nothing.
        stops: the generation has ended, so this step is the last one.
    """

    claim: Claim | None
    stops: bool


@dataclass(frozen=True, slots=True)
class ReplicaStep:
    """The claims on the step that made a version, by worker: all, or those of one member."""

    version: int
    claims: Mapping[int, Claim]


@dataclass(frozen=True, slots=True)
class VersionOrigin:
    """The generation that has made a version: equal ones mean that all steps up to it are equal.

    Attributes:
        incarnation: of the master.
        number: of the generation.
    """

    incarnation: str
    number: int


@dataclass(frozen=True, slots=True)
class OriginSpan:
    """The versions from one on that have an origin, until the next origin."""

    version: int
    origin: VersionOrigin


@dataclass(frozen=True, slots=True)
class Holding:
    """The values that a member has, and the versions whose steps it can tell a new master.

    Attributes:
        version: of the values.
        origins: in the order of their versions.
    """

    version: int
    origins: tuple[OriginSpan, ...]


@dataclass(frozen=True, slots=True)
class Generation:
    """A list of members that train in step until the master ends it.

    Attributes:
        members: workers by rank.
        version: at which it begins.
        sources: members that have the values of this version; empty: the master has them.
        counts: by token, for the older leases of this worker that are still valid, how many
            minibatches of the task are in the values.
        next_token: no other lease with a token below this one is valid.
        save: the member of rank 0 sends the values of this version to the master.
        learning_rate: in place of the optimizer's own; None: the optimizer's own.
        finish: the optimizer's average becomes the values.
        addresses: of the members, at which their peers reach them; empty where they need none.
        incarnation: of the master, which counts generations anew.
        origin: of the version.
    """

    number: int
    members: tuple[int, ...]
    version: int
    sources: tuple[int, ...] = ()
    counts: Mapping[int, int] = field(default_factory=dict)
    next_token: int = 0
    save: bool = False
    learning_rate: float | None = None
    finish: bool = False
    addresses: tuple[str, ...] = ()
    incarnation: str = ""
    origin: VersionOrigin = field(default=VersionOrigin("", 0))


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """The master's answer to a worker that wants to take part.

    Attributes:
        generation: None: none has begun yet.
        save: the worker leaves, and nothing else has its values: it sends them, and asks again.
        left: the worker is no member any more.
        steps_after: it asks again, and tells the steps after this version.
    """

    generation: Generation | None = None
    save: bool = False
    left: bool = False
    steps_after: int | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """How far a member has come in a generation.

    Attributes:
        version: of its values; None: it has none.
        steps: the last ones, with all that are not known to count.
        stopped: it makes no further step in this generation.
        unreachable: the member because of which it has stopped; None: it is another reason.
        cause: why that member cannot be reached.
        compute_s: mean duration of computing a gradient since the last report.
        complete: the steps have the claims of all members, not only of this one.
    """

    generation: int
    version: int | None
    steps: tuple[ReplicaStep, ...] = ()
    stopped: bool = False
    unreachable: int | None = None
    cause: str = ""
    compute_s: float = 0.0
    complete: bool = False


@dataclass(frozen=True, slots=True)
class ReportAnswer:
    """The master's answer to a report.

    Attributes:
        counted: version of the last step that counts.
        ended: the generation ends: the member stops, and reports that.
        lost: the worker is no member: its values must not be used further.
        all_wanted: the next report is to have the claims of all members.
        saved: version of the master's last snapshot; None: it has none.
    """

    counted: int
    ended: bool = False
    lost: bool = False
    all_wanted: bool = False
    saved: int | None = None
