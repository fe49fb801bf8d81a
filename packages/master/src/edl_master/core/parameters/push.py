"""A push: the claim that is decided, the gradient that is applied, and the result."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from edl_master.core.identifiers import TaskKey, Token, Version, WorkerId
from edl_master.core.parameters.payload import Payload
from edl_master.core.parameters.tables.payloads import RowPayload

MinibatchKey: TypeAlias = tuple[TaskKey, Token, int]
"""A minibatch as computed under one lease."""


@dataclass(frozen=True, slots=True)
class PushClaim:
    """The minibatches that a push claims to have computed. The ledger decides on this alone.

    Attributes:
        task: the task that the minibatch belongs to.
        token: the lease under which it was computed.
        minibatch: index of the minibatch in the task, from 0.
        records: records in the minibatch, at least 1; its weight in a synchronous mean.
        base_version: version of the values it was computed from.
        minibatches: number of minibatches, ``minibatch`` being the first; above 1 only with
            local steps.
        worker: who computed it; None: the holder of the lease.
    """

    task: TaskKey
    token: Token
    minibatch: int
    records: int
    base_version: Version
    minibatches: int = 1
    worker: WorkerId | None = None

    @property
    def key(self) -> MinibatchKey:
        """Identifies the push among all that its worker has prepared."""
        return self.task, self.token, self.minibatch


@dataclass(frozen=True, slots=True)
class Gradient:
    """The change that a push asks for. The store works on this alone.

    Attributes:
        values: gradients of the trainable variables, packed in wire order. With local steps: by
            how much the minibatches have moved the variables.
        state_delta: by how much the other variables moved, packed likewise; None if they did not.
        rows: gradients of the rows of embedding tables that the minibatch has used; None if it
            has used none.
    """

    values: Payload
    state_delta: Payload | None = None
    rows: RowPayload | None = None


class PushOutcome(StrEnum):
    """What was decided about a push. Only ``APPLIED`` has changed anything."""

    APPLIED = "applied"
    """It is in the values, or accumulated for the next version; it must not be pushed again."""
    ALREADY_APPLIED = "already_applied"
    """An earlier attempt with this minibatch was applied."""
    STALE = "stale"
    """Compute the minibatch again from newer values; in sync mode, under a step permit."""
    REFUSED = "refused"
    """The lease is not, or no longer, the caller's."""
    OUT_OF_ORDER = "out_of_order"
    """A minibatch before this one is missing: an error of the caller."""
    INVALID = "invalid"
    """The gradient or state delta contains an infinity or a NaN."""


@dataclass(frozen=True, slots=True)
class PushResult:
    """The answer to a push.

    Attributes:
        outcome: what was decided.
        version: the parameter version after the decision.
        staleness: updates between the push's base version and the decision.
        new_version: whether this push completed an update.
        detail: for ``INVALID``, the variable or table; otherwise empty.
    """

    outcome: PushOutcome
    version: Version
    staleness: int
    new_version: bool = False
    detail: str = ""


class NotInitialized(RuntimeError):
    """There are no values yet: the initial values come first."""
