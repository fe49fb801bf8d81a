"""Update modes: when a gradient becomes an update, and which gradients are too old."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, TypeAlias


class Reduction(StrEnum):
    """The reduction of the loss, and so the way in which gradients are combined."""

    MEAN = "mean"
    SUM = "sum"


@dataclass(frozen=True, slots=True)
class Async:
    """Each gradient is an update at once, however old the values it was computed from.

    With local steps workers update values themselves for some minibatches, and push by how much
    these have moved: that is added as it is. A version is still one minibatch: so many updates
    there have been.

    Attributes:
        local_steps: minibatches between two pushes of a worker.
    """

    local_steps: int = 1

    @property
    def local(self) -> bool:
        """Whether workers update values themselves."""
        return self.local_steps > 1

    def allows(self, minibatches: int) -> bool:
        """Return whether a push may have this many minibatches: several only with local steps."""
        return 1 <= minibatches <= self.local_steps


@dataclass(frozen=True, slots=True)
class Bounded:
    """Asynchronous, but gradients more than ``max_staleness`` updates old are computed again."""

    max_staleness: int

    def __post_init__(self) -> None:
        if self.max_staleness < 0:
            raise ValueError(f"max-staleness must be at least 0, not {self.max_staleness}")

    def allows(self, minibatches: int) -> bool:
        """Return whether a push may have this many minibatches."""
        return minibatches == 1


@dataclass(frozen=True, slots=True)
class Sync:
    """``grads_to_wait`` gradients, all of one version, are accumulated for one update.

    With mean, each weighs as many records as it was computed from, so that the update equals
    that of one large minibatch of all those records; with sum, gradients are added.
    """

    grads_to_wait: int
    reduction: Reduction = Reduction.MEAN

    def __post_init__(self) -> None:
        object.__setattr__(self, "reduction", Reduction(self.reduction))
        if self.grads_to_wait < 1:
            raise ValueError(f"grads-to-wait must be at least 1, not {self.grads_to_wait}")

    def allows(self, minibatches: int) -> bool:
        """Return whether a push may have this many minibatches."""
        return minibatches == 1


@dataclass(frozen=True, slots=True)
class Replicated:
    """Workers hold the values and update them in step; the store only keeps what they send."""

    def allows(self, minibatches: int) -> bool:
        """Return whether a push may have this many minibatches: there are no pushes."""
        del minibatches
        return False


UpdateMode: TypeAlias = Async | Bounded | Sync | Replicated


def describe(mode: UpdateMode) -> dict[str, Any]:
    """Return a mode as plain values that JSON can hold."""
    settings = asdict(mode)
    if settings.get("local_steps") == 1:
        del settings["local_steps"]
    return {"mode": type(mode).__name__.lower(), **settings}
