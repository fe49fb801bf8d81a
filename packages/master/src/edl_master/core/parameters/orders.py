"""Orders: what the master has decided about parameters, for the servers that hold them.

Every server carries out all orders of an incarnation, in the order in which they were given. So
after the same order all of them are at the same version and have the same counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from edl_master.core.identifiers import TaskKey, Token, Version, WorkerId


@dataclass(frozen=True, slots=True)
class Adopt:
    """The initial values are those that this worker has offered."""

    worker: WorkerId


@dataclass(frozen=True, slots=True)
class Grant:
    """From now on only this token may push for the task."""

    task: TaskKey
    token: Token


@dataclass(frozen=True, slots=True)
class Revoke:
    """This token may push no more."""

    task: TaskKey
    token: Token


@dataclass(frozen=True, slots=True)
class Close:
    """The task is complete or given up: forget its count."""

    task: TaskKey


@dataclass(frozen=True, slots=True)
class Apply:
    """The gradient of this minibatch, or of several from it on, counts; it was staged before."""

    task: TaskKey
    token: Token
    minibatch: int
    records: int
    base_version: Version
    minibatches: int = 1
    squares: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Flush:
    """Make an update of the accumulated gradients (sync mode)."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Training is over: put the optimizer's average of the values in place, if it has one."""


@dataclass(frozen=True, slots=True)
class Freeze:
    """Keep the present values under a name."""

    name: str


@dataclass(frozen=True, slots=True)
class Release:
    """Forget frozen values."""

    name: str


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep the whole state for a snapshot.

    Attributes:
        label: of the snapshot, the same for all servers.
        place: where it goes; a name that the servers' outside knows.
    """

    label: str
    place: str


Order = Adopt | Grant | Revoke | Close | Apply | Flush | Finish | Freeze | Release | Keep
