"""Commands: what the coordinator has decided about values, for every store to apply.

Every store applies all commands of the log, in the order of the log. So after the same command all
stores are at the same version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from edl_master.core.identifiers import TaskKey, Token, Version, WorkerId
from edl_master.core.parameters.push import MinibatchKey


@dataclass(frozen=True, slots=True)
class CommitInitialValues:
    """The initial values are those that this worker has proposed."""

    worker: WorkerId


@dataclass(frozen=True, slots=True)
class CommitPush:
    """Apply or accumulate a gradient that was prepared before.

    Attributes:
        task: of the minibatch.
        token: of the lease under which it was computed.
        minibatch: its index in the task.
        records: the weight of the gradient in a synchronous mean.
        version: the version after the command; the present one if the gradient is accumulated.
        minibatches: number of minibatches that the gradient is of, with local steps.
        squares: the whole gradient's ``gradient_clip.shared_sums``; empty if no store needs them.
        worker: who has prepared it; None: any worker.
    """

    task: TaskKey
    token: Token
    minibatch: int
    records: int
    version: Version
    minibatches: int = 1
    squares: tuple[float, ...] = ()
    worker: WorkerId | None = None

    @property
    def key(self) -> MinibatchKey:
        """Identifies the gradient among all that its worker has prepared."""
        return self.task, self.token, self.minibatch


@dataclass(frozen=True, slots=True)
class FlushAccumulated:
    """Make an update of the accumulated gradients, which gives this version (sync mode)."""

    version: Version


@dataclass(frozen=True, slots=True)
class ReplaceValues:
    """The values are those that this worker has sent, at this version (replicated training)."""

    worker: WorkerId
    version: Version


@dataclass(frozen=True, slots=True)
class SetLearningRate:
    """The command to override the optimizer's schedule with this learning rate from now on."""

    rate: float


@dataclass(frozen=True, slots=True)
class KeepBestValues:
    """Keep the present values as the best so far, instead of those kept before."""


@dataclass(frozen=True, slots=True)
class RestoreBestValues:
    """Make the best values the present ones, which gives this version."""

    version: Version


@dataclass(frozen=True, slots=True)
class FinishTraining:
    """Make the optimizer's average the values if it keeps one, which gives this version."""

    version: Version


@dataclass(frozen=True, slots=True)
class FreezeVersion:
    """Keep a copy of the present values under a name."""

    name: str


@dataclass(frozen=True, slots=True)
class ReleaseVersion:
    """Forget a frozen version."""

    name: str


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    """Take a snapshot of the whole state.

    Attributes:
        label: of the snapshot, the same for all stores.
        place: where a parameter server writes its part; empty if it is not to be written there.
    """

    label: str
    place: str


Command: TypeAlias = (
    CommitInitialValues
    | CommitPush
    | FlushAccumulated
    | ReplaceValues
    | SetLearningRate
    | KeepBestValues
    | RestoreBestValues
    | FinishTraining
    | FreezeVersion
    | ReleaseVersion
    | TakeSnapshot
)
