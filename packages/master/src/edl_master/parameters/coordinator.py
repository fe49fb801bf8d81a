"""The coordinator: the push ledger behind its lock, and the log of its decisions.

Everything here is short: nothing is computed or copied under the lock. A thread that holds
the job's lock may call every method but those that wait.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from edl_master.core.identifiers import AppliedCount, HeldLease, TaskKey, Token, Version, WorkerId
from edl_master.core.parameters.commands import (
    CommitInitialValues,
    CommitPush,
    FinishTraining,
    FlushAccumulated,
    FreezeVersion,
    KeepBestValues,
    ReleaseVersion,
    ReplaceValues,
    RestoreBestValues,
    SetLearningRate,
)
from edl_master.core.parameters.modes import UpdateMode
from edl_master.core.parameters.payload import PayloadError
from edl_master.core.parameters.permits import PermitGranted, PermitRefused
from edl_master.core.parameters.push import PushClaim, PushOutcome, PushResult
from edl_master.core.parameters.push_ledger import PushLedger
from edl_master.core.parameters.schedules import find_schedules
from edl_master.core.parameters.shard_layout import ShardLayout
from edl_master.core.parameters.statistics import TableStatistics
from edl_master.core.replica_events import CountReplicaStep
from edl_master.parameters.errors import not_ready
from edl_master.parameters.stores import Model, PendingSnapshot, Stores


class Coordinator:
    """Decides about the parameters of one job; thread-safe.

    There is no ledger before ``begin``; until then every method that needs one raises ``EdlError``
    NOT_READY.

    Args:
        stores: apply what is decided.
    """

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._changed = threading.Condition()
        self._ledger: PushLedger | None = None
        self._model: Model | None = None
        self._over = False

    # --- the model -------------------------------------------------------------------------

    def begin(self, model: Model, saved: Mapping[str, Any] | None) -> None:
        """Decide about a model from now on, once the stores serve it.

        Args:
            model: the job's.
            saved: the state of the ledger to continue from; None at the beginning of a job.
        """
        ledger = PushLedger(model.mode, keeps_average=model.optimizer.keeps_average)
        if saved is not None:
            ledger.restore(saved)
            ledger.revoke_all()
        with self._changed:
            self._ledger, self._model = ledger, model

    @property
    def initialized(self) -> bool:
        """Whether the model has values yet."""
        return self._made.initialized

    @property
    def mode(self) -> UpdateMode | None:
        """How gradients become updates; None before there is a model."""
        return self._model.mode if self._model else None

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the job's model."""
        if self._model is None:
            raise not_ready()
        return self._model.layout.fingerprint

    @property
    def shard_layouts(self) -> tuple[ShardLayout, ...]:
        """The layout of each parameter server's shard; empty if there are none."""
        return self._stores.shard_layouts

    @property
    def log_index(self) -> int:
        """Commands that a worker that has this answer must wait for; 0 without servers."""
        return self._stores.log_index

    @property
    def _made(self) -> PushLedger:
        if self._ledger is None:
            raise not_ready()
        return self._ledger

    # --- workers ---------------------------------------------------------------------------

    @property
    def limits_permits(self) -> bool:
        """Whether a worker may have to wait for a step permit."""
        return self._made.limits_permits

    def commit_initial_values(self, worker: WorkerId) -> bool:
        """Use the values that a worker has proposed to all stores, unless there are values.

        Returns:
            Whether they are used.
        """
        with self._changing() as ledger:
            accepted = ledger.initialize()
            if accepted:
                self._stores.append(CommitInitialValues(worker))
            return accepted

    def judge(self, claim: PushClaim, not_finite: str = "") -> PushResult | None:
        """Reject a push that cannot count now; None if ``commit`` would accept it."""
        with self._changed:
            return self._made.judge(claim, not_finite)

    def commit(
        self, claim: PushClaim, not_finite: str = "", squares: tuple[float, ...] = ()
    ) -> PushResult:
        """Count a push whose gradient all stores have prepared, and have them apply it.

        Args:
            claim: what the push claims.
            not_finite: as in ``PushLedger.judge``.
            squares: sums of squares over all parts, if there are several.

        Raises:
            PayloadError: there are not as many sums as the stores need.
        """
        if len(squares) != (needed := self._stores.shared_sums):
            raise PayloadError(f"{len(squares)} sums of squares arrived, not {needed}")
        with self._changing() as ledger:
            result = ledger.commit(claim, not_finite)
            if result.outcome is PushOutcome.APPLIED:
                self._stores.append(
                    CommitPush(
                        claim.task,
                        claim.token,
                        claim.minibatch,
                        claim.records,
                        result.version,
                        claim.minibatches,
                        squares,
                        claim.worker,
                    )
                )
            return result

    def count_step(self, step: CountReplicaStep) -> None:
        """Count the minibatches of a step of replicated training."""
        with self._changing() as ledger:
            ledger.count_step(step.version, step.claims, inherited=step.inherited)

    def store_values(self, worker: WorkerId, version: Version) -> None:
        """Use the values that a worker has sent, at a version."""
        with self._changed:
            self._stores.append(ReplaceValues(worker, version))

    def wait_for_permit(
        self,
        lease: HeldLease,
        wait_s: float,
        is_wanted: Callable[[], bool] = lambda: True,
        *,
        worker: WorkerId | None = None,
    ) -> PermitGranted | PermitRefused | None:
        """Wait for a step permit.

        Args:
            lease: that needs it.
            wait_s: how long to wait at most.
            is_wanted: False when the caller is gone.
            worker: who asks; None: the holder of the lease.

        Returns:
            None if the time is over, or the job, or the caller is gone.
        """
        deadline = time.monotonic() + wait_s
        with self._changed:
            while True:
                answer = self._made.request_permit(lease.task, lease.token, worker)
                if isinstance(answer, PermitGranted | PermitRefused):
                    return answer
                if not self._wait(deadline, is_wanted):
                    return None

    def wait_for_values(
        self, wait_s: float, is_wanted: Callable[[], bool] = lambda: True
    ) -> Version | None:
        """Wait for the initial values; return the parameter version, or None without values."""
        deadline = time.monotonic() + wait_s
        with self._changed:
            while not self._made.initialized:
                if not self._wait(deadline, is_wanted):
                    return None
            return self._made.version

    def _wait(self, deadline: float, is_wanted: Callable[[], bool]) -> bool:
        """Wait for a change, with the lock; False if there is nothing to wait for any more."""
        left_s = deadline - time.monotonic()
        if left_s <= 0 or self._over:
            return False
        self._changed.wait(left_s)
        return is_wanted()

    # --- the job ---------------------------------------------------------------------------

    def grant(self, task: TaskKey, token: Token, holder: WorkerId | None = None) -> int:
        """Allow only this token to push for the task; return the number of minibatches to skip.

        Args:
            holder: the only worker that may use it; None: any.
        """
        with self._changing() as ledger:
            return ledger.grant(task, token, holder)

    def revoke(self, task: TaskKey, token: Token) -> None:
        """Reject further pushes with this token."""
        with self._changing_if_made() as ledger:
            if ledger and not ledger.revoke(task, token):
                self._changed.notify_all()  # no permit became free; its holder may wait for one

    def close(self, task: TaskKey) -> None:
        """Forget the count of a task that is complete or dead."""
        with self._changing_if_made() as ledger:
            if ledger:
                ledger.close(task)

    def count_applied(self, task: TaskKey) -> AppliedCount:
        """Return how much of an open task has been applied; nothing for any other task."""
        with self._changed:
            counts = self._ledger.applied_counts() if self._ledger else {}
            return counts.get(task, AppliedCount())

    def flush(self) -> None:
        """Make an update of the accumulated gradients (sync mode)."""
        with self._changing_if_made() as ledger:
            if ledger:
                self._flush(ledger)

    def _flush(self, ledger: PushLedger) -> None:
        if ledger.flush():
            self._stores.append(FlushAccumulated(ledger.version))

    def finish(self) -> None:
        """Training is over: put the optimizer's average of the values in place, if it has one."""
        with self._changing_if_made() as ledger:
            if ledger:
                self._flush(ledger)
                if ledger.finish():
                    self._stores.append(FinishTraining(ledger.version))

    @property
    def schedules(self) -> tuple[str | None, ...]:
        """The schedule of each of the model's optimizers; empty before there is a model."""
        return find_schedules(json.loads(self._model.optimizer_json)) if self._model else ()

    def set_learning_rate(self, rate: float) -> None:
        """Give all updates from now on this learning rate."""
        with self._changed:
            self._made.learning_rate = rate
            self._stores.append(SetLearningRate(rate))

    def keep_best(self) -> None:
        """Keep the present values as the best so far."""
        with self._changed:
            self._stores.append(KeepBestValues())

    def restore_best(self) -> None:
        """Make the best values the present ones; no gradient may come after this."""
        with self._changing() as ledger:
            ledger.restore_best()
            self._stores.append(RestoreBestValues(ledger.version))

    def freeze(self, name: str) -> Version:
        """Keep the present values under a name."""
        with self._changed:
            version = self._made.freeze(name)
            self._stores.append(FreezeVersion(name))
            return version

    def release(self, name: str) -> None:
        """Forget frozen values."""
        with self._changed:
            if self._ledger and self._ledger.release(name):
                self._stores.append(ReleaseVersion(name))

    def snapshot(self, place: str) -> PendingSnapshot | None:
        """Take a snapshot of ledger and values; None while there is nothing to keep.

        Args:
            place: where parameter servers are to write their parts of it.
        """
        with self._changed:
            if self._ledger is None or not self._ledger.initialized:
                return None
            return self._stores.take_snapshot(self._ledger.describe(), place)

    def end_waits(self) -> None:
        """End all waiting: the job is over."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    # --- statistics ------------------------------------------------------------------------

    def tables(self) -> TableStatistics:
        """Return the sizes of the embedding tables; empty while there is no model."""
        return self._stores.tables() if self._ledger else TableStatistics()

    # --- inside ----------------------------------------------------------------------------

    @contextmanager
    def _changing(self) -> Iterator[PushLedger]:
        with self._changed:
            ledger = self._made
            before = ledger.generation
            try:
                yield ledger
            finally:
                if ledger.generation != before:
                    self._changed.notify_all()

    @contextmanager
    def _changing_if_made(self) -> Iterator[PushLedger | None]:
        if self._ledger is None:
            yield None
        else:
            with self._changing() as ledger:
                yield ledger
