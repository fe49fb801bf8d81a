"""The plane of a master whose parameters are served by others: it decides, they compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from edl_master.core.identifiers import TaskKey, Token, Version, WorkerId
from edl_master.core.parameters.exchange import GradientPush, PushKind, PushOutcome
from edl_master.core.parameters.layout import Layout
from edl_master.core.parameters.modes import UpdateMode
from edl_master.core.parameters.optimizers import Optimizer
from edl_master.core.parameters.orders import (
    Adopt,
    Apply,
    Close,
    Finish,
    Flush,
    Freeze,
    Grant,
    Keep,
    Order,
    Release,
    Revoke,
)
from edl_master.core.parameters.payload import PayloadError
from edl_master.core.parameters.plane import ParameterPlane, check_fit
from edl_master.core.parameters.sharding import NOTHING, for_part
from edl_master.core.parameters.snapshot import Snapshot


class LeadingPlane(ParameterPlane):
    """A plane without values: leases, counts, step permits and the version.

    Whatever it decides goes out as an order in the same step. The caller's lock is around both,
    so orders are given in the order of the decisions.
    """

    def __init__(
        self,
        model: Layout,
        optimizer: Optimizer,
        mode: UpdateMode,
        give: Callable[[Order], None],
        sums: int = 0,
    ) -> None:
        """Make a plane that is at its beginning.

        Args:
            model: what the servers have, all together.
            optimizer: what the servers' updates do; here it is counted.
            mode: when there is an update.
            give: takes orders; it does not wait.
            sums: how many servers need of one another to clip, see ``sharding.sums_between``.

        Raises:
            ValueError: the optimizer does not fit the model.
        """
        check_fit(optimizer, model, mode)
        super().__init__(NOTHING.layout, for_part(optimizer, NOTHING.layout), mode)
        self._model = model
        self._give = give
        self._sums = sums

    def adopt(self, worker: WorkerId) -> bool:
        """Make the values that a worker has offered to all servers the initial ones, once."""
        adopted = self.initialize(b"")
        if adopted:
            self._give(Adopt(worker))
        return adopted

    def keep(self, label: str, place: str) -> Snapshot:
        """Take a snapshot, and have the servers take theirs of the same moment."""
        kept = self.snapshot()
        self._give(Keep(label, place))
        model = {"layout": self._model.describe(), "tables": self._model.describe_tables()}
        return replace(kept, meta={**kept.meta, "model": model, "label": label})

    def grant(self, task: TaskKey, token: Token) -> int:
        applied = super().grant(task, token)
        self._give(Grant(task, token))
        return applied

    def revoke(self, task: TaskKey, token: Token) -> bool:
        freed = super().revoke(task, token)
        self._give(Revoke(task, token))
        return freed

    def close(self, task: TaskKey) -> int:
        applied = super().close(task)
        self._give(Close(task))
        return applied

    def push(self, push: GradientPush) -> PushOutcome:
        """Count a gradient whose parts all servers have.

        Raises:
            PayloadError: it has not the sums that servers need of one another; and as ever.
        """
        if len(push.squares) != self._sums:
            raise PayloadError(f"{len(push.squares)} sums came to clip by, not {self._sums}")
        outcome = super().push(push)
        if outcome.kind is PushKind.APPLIED:
            self._give(
                Apply(
                    push.task,
                    push.token,
                    push.minibatch,
                    push.records,
                    push.base_version,
                    push.minibatches,
                    push.squares,
                )
            )
        return outcome

    def flush(self) -> bool:
        flushed = super().flush()
        if flushed:
            self._give(Flush())
        return flushed

    def finish(self) -> bool:
        finished = super().finish()
        self._give(Finish())
        return finished

    def freeze(self, name: str) -> Version:
        version = super().freeze(name)
        self._give(Freeze(name))
        return version

    def release(self, name: str) -> bool:
        released = super().release(name)
        self._give(Release(name))
        return released
