"""What workers push and ask for, and what they are answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from edl_master.core.identifiers import TaskKey, Token, Version
from edl_master.core.parameters.payload import Payload
from edl_master.core.parameters.tables.payloads import RowPayload


@dataclass(frozen=True, slots=True)
class GradientPush:
    """What a worker computed from one minibatch, or with local steps from several.

    Attributes:
        task: the task that the minibatch belongs to.
        token: the lease under which it was computed.
        minibatch: index of the minibatch in the task, from 0.
        records: records in the minibatch, at least 1; its weight in a synchronous mean.
        base_version: version of the values it was computed from.
        gradient: trainable variables, packed in wire order.
        state_delta: by how much the other variables moved, packed likewise; None if they did not.
        rows: gradients of the rows of embedding tables that the minibatch has used.
        minibatches: that it stands for, ``minibatch`` being the first. With local steps the
            gradient is by how much they have moved the trainable variables.
        squares: if this is a part of a gradient: the ``shared_sums`` of the whole.
    """

    task: TaskKey
    token: Token
    minibatch: int
    records: int
    base_version: Version
    gradient: Payload
    state_delta: Payload | None = None
    rows: tuple[RowPayload, ...] = ()
    minibatches: int = 1
    squares: tuple[float, ...] = ()


class PushKind(StrEnum):
    """What became of a push. Only ``APPLIED`` has changed anything."""

    APPLIED = "applied"
    """It is in the values, or accumulated for the next version; it must not be pushed again."""
    ALREADY_APPLIED = "already-applied"
    """An earlier try of this minibatch was applied."""
    STALE = "stale"
    """Compute the minibatch again from newer values; in sync mode, under a step permit."""
    REFUSED = "refused"
    """The lease is not, or no longer, the caller's."""
    OUT_OF_ORDER = "out-of-order"
    """A minibatch before this one is missing: a fault of the caller."""
    INVALID = "invalid"
    """The gradient or state delta holds an infinity or not a number."""


@dataclass(frozen=True, slots=True)
class PushOutcome:
    """The answer to a push.

    Attributes:
        kind: what became of it.
        version: the plane's version now.
        staleness: updates between the push's base version and the values it met.
        new_version: whether this push completed an update.
        detail: for ``INVALID``, the variable; otherwise empty.
    """

    kind: PushKind
    version: Version
    staleness: int
    new_version: bool = False
    detail: str = ""


@dataclass(frozen=True, slots=True)
class PermitGranted:
    """The lease may compute one gradient from this version."""

    version: Version


@dataclass(frozen=True, slots=True)
class PermitPending:
    """Ask again when ``ParameterPlane.generation`` is no longer this number."""

    generation: int


@dataclass(frozen=True, slots=True)
class PermitRefused:
    """The lease is not, or no longer, the caller's: it would wait for ever."""


PermitAnswer: TypeAlias = PermitGranted | PermitPending | PermitRefused


@dataclass(frozen=True, slots=True)
class TableFigures:
    """How large embedding tables are.

    Attributes:
        rows: of each table, by its name.
        nbytes: memory of all tables, slots and indexes included.
    """

    rows: Mapping[str, int] = field(default_factory=dict)
    nbytes: int = 0

    def __add__(self, other: TableFigures) -> TableFigures:
        """Of both together."""
        rows = {
            name: self.rows.get(name, 0) + other.rows.get(name, 0)
            for name in dict.fromkeys((*self.rows, *other.rows))
        }
        return TableFigures(rows, self.nbytes + other.nbytes)


@dataclass(frozen=True, slots=True)
class PlaneStatus:
    """Figures for the status page.

    Attributes:
        version: parameter version.
        learning_rate: rate of the next update.
        records_applied: records whose gradients were applied or accumulated.
        gradients_applied: gradients applied or accumulated.
        gradients_rejected: pushes that were not applied, by kind.
        staleness_total: sum of the staleness of the gradients applied.
        accumulated: gradients that wait for their update to be complete (sync mode).
        step_permits_held: step permits in use (sync mode).
        open_tasks: tasks with a count.
        tables: how large embedding tables are.
    """

    version: Version
    learning_rate: float
    records_applied: int
    gradients_applied: int
    gradients_rejected: Mapping[PushKind, int]
    staleness_total: int
    accumulated: int
    step_permits_held: int
    open_tasks: int
    tables: TableFigures = field(default_factory=TableFigures)


class NotInitialized(RuntimeError):
    """The plane has no values yet: ``initialize`` comes first."""
