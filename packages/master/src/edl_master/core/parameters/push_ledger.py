"""The push ledger: decides about every push, and about everything that changes values.

A push names a minibatch. If the minibatch has not been counted yet, it is counted and its gradient
is applied, in the same decision. A push that is repeated, late or comes from a former holder of
the task changes nothing. So every record trains the model exactly once.

Nothing here waits, locks, knows the time or has any values. The caller holds one lock around each
call, and waits outside of it for ``generation`` to change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edl_master.core.identifiers import AppliedCount, TaskKey, Token, Version, WorkerId
from edl_master.core.parameters.applied_counts import AppliedCounts, PushVerdict
from edl_master.core.parameters.modes import (
    Async,
    Bounded,
    Replicated,
    Sync,
    UpdateMode,
    describe,
)
from edl_master.core.parameters.payload import PayloadError
from edl_master.core.parameters.permits import (
    PermitAnswer,
    PermitGranted,
    PermitPending,
    PermitRefused,
    StepPermits,
)
from edl_master.core.parameters.push import NotInitialized, PushClaim, PushOutcome, PushResult
from edl_master.core.replica_events import ReplicaStep

_REJECTIONS = {
    PushVerdict.REFUSED: PushOutcome.REFUSED,
    PushVerdict.ALREADY_APPLIED: PushOutcome.ALREADY_APPLIED,
    PushVerdict.OUT_OF_ORDER: PushOutcome.OUT_OF_ORDER,
}


class PushLedger:
    """Tokens, counts, permits and the parameter version of one job.

    Attributes:
        mode: decides when there is an update.
        initialized: whether there are initial values.
        version: number of updates since the initial values.
        iterations: position in the schedule of the learning rate.
        learning_rate: what was set in the schedule's place; None: nothing was.
        generation: grows whenever an answer of ``PermitPending`` may have become another.

    Args:
        mode: when there is an update.
        keeps_average: whether the optimizer keeps an average of the values, which ``finish``
            makes the values.
    """

    def __init__(self, mode: UpdateMode, *, keeps_average: bool = False) -> None:
        self.mode = mode
        self.initialized = False
        self.version = Version(0)
        self.iterations = 0
        self.learning_rate: float | None = None
        self.generation = 0
        self._keeps_average = keeps_average
        self._counts = AppliedCounts()
        self._permits = StepPermits(mode.grads_to_wait if isinstance(mode, Sync) else None)
        self._frozen: dict[str, Version] = {}

    # --- values ----------------------------------------------------------------------------

    def initialize(self) -> bool:
        """Accept initial values; return False if there are some already."""
        if self.initialized:
            return False
        self.initialized = True
        self.generation += 1
        return True

    def freeze(self, name: str) -> Version:
        """Reserve a name for the present version; return the version that the name stands for.

        A name stands for the first version that it was given to, until it is released.

        Raises:
            NotInitialized: there are no values yet.
        """
        if not self.initialized:
            raise NotInitialized("no worker has sent the initial values yet")
        return self._frozen.setdefault(name, self.version)

    def release(self, name: str) -> bool:
        """Free a name; return whether it was in use."""
        return self._frozen.pop(name, None) is not None

    # --- leases ----------------------------------------------------------------------------

    def grant(self, task: TaskKey, token: Token, holder: WorkerId | None = None) -> int:
        """Record a lease: from now on only this token may push for the task.

        Args:
            holder: the only worker that may use it; None: any.

        Returns:
            How many of the task's minibatches have been applied: the holder skips them.

        Raises:
            ValueError: the token is older than one that the task had before.
        """
        is_repeated = self._counts.is_live(task, token)
        applied = self._counts.grant(task, token, holder)
        if not is_repeated:
            self._end_lease(task)
        return applied

    def revoke(self, task: TaskKey, token: Token) -> bool:
        """Record a lost lease: its token may push no more; the count stays for the next holder.

        Returns:
            Whether a step permit became free. Nothing happens if the lease was not current.
        """
        return self._counts.revoke(task, token) and self._end_lease(task)

    def revoke_all(self) -> None:
        """Revoke all leases: they are an earlier master's, and their holders are unknown.

        Any worker could use them: it would have to name the token, and tokens only count up.
        """
        self._counts.revoke_all()

    def close(self, task: TaskKey) -> None:
        """Forget the count of a task that is complete or dead.

        A closed task must not be granted again: it would start at 0. The ledger of tasks is
        therefore saved in the same step as a snapshot of this ledger, or before it.
        """
        self._end_lease(task)
        self._counts.close(task)

    def applied_counts(self) -> dict[TaskKey, AppliedCount]:
        """Return how much of each open task has been applied."""
        return self._counts.counts()

    # --- step permits ----------------------------------------------------------------------

    @property
    def limits_permits(self) -> bool:
        """Whether a worker may have to wait for a step permit (sync mode)."""
        return self._permits.capacity is not None

    @property
    def accumulated(self) -> int:
        """Number of gradients that wait for their update to be complete (sync mode)."""
        return self._permits.accumulated

    @property
    def permits_held(self) -> int:
        """Number of step permits in use (sync mode)."""
        return len(self._permits.holders)

    def request_permit(
        self, task: TaskKey, token: Token, worker: WorkerId | None = None
    ) -> PermitAnswer:
        """Ask for the right to compute a gradient for the next minibatch of a task.

        In sync mode there are as many step permits as gradients that the present version still
        lacks; otherwise there is always one. A lease has at most one, until its gradient is
        applied or the lease ends; asking again changes nothing.

        Args:
            worker: who asks; None: the holder of the lease. Another one could take the permit that
                the holder's present task waits for, by naming a lease that it has in advance.
        """
        if not self._counts.is_live(task, token, worker):
            return PermitRefused()
        if self.initialized and self._permits.acquire(task):
            return PermitGranted(self.version)
        return PermitPending(self.generation)

    # --- pushes ----------------------------------------------------------------------------

    def judge(self, claim: PushClaim, not_finite: str = "") -> PushResult | None:
        """Reject a push that cannot count; return None if ``commit`` would accept it now.

        Args:
            claim: what the push claims.
            not_finite: the variable or table with an infinity or NaN; empty if there is none.

        Raises:
            NotInitialized: there are no values yet.
            PayloadError: there are more minibatches than the mode has local steps.
            ValueError: there are no records in the minibatch.
        """
        if not self.initialized:
            raise NotInitialized("no worker has sent the initial values yet")
        if claim.records < 1:
            raise ValueError(f"a gradient of {claim.records} records has no weight")
        if not self.mode.allows(claim.minibatches):
            raise PayloadError(
                f"a gradient of {claim.minibatches} minibatches, more than the job's local steps"
            )
        verdict = self._counts.verdict(
            claim.task, claim.token, claim.minibatch, claim.minibatches, claim.worker
        )
        staleness = self.version - claim.base_version
        if verdict is not PushVerdict.DUE:
            return self._result(_REJECTIONS[verdict], staleness)
        if self._is_stale(staleness):
            return self._result(PushOutcome.STALE, staleness)
        if not_finite:
            return self._result(PushOutcome.INVALID, staleness, detail=not_finite)
        if not self._permits.available(claim.task):
            # All gradients that this version lacks are being computed under step permits.
            return self._result(PushOutcome.STALE, staleness)
        return None

    def commit(self, claim: PushClaim, not_finite: str = "") -> PushResult:
        """Count a push, or reject it. If it is ``APPLIED``, its gradient must be applied now.

        Args:
            claim: what the push claims.
            not_finite: as in ``judge``.

        Raises:
            NotInitialized, PayloadError, ValueError: as ``judge``.
        """
        rejected = self.judge(claim, not_finite)
        if rejected is not None:
            return rejected
        staleness = self.version - claim.base_version
        is_complete = self._permits.contribute(claim.task)
        self._counts.advance(claim.task, claim.minibatches, claim.records)
        if is_complete:
            self._advance(claim.minibatches)
        return self._result(PushOutcome.APPLIED, staleness, new_version=is_complete)

    def count_step(self, version: Version, claims: ReplicaStep, *, inherited: bool = False) -> None:
        """Count the minibatches of a step of replicated training.

        Args:
            version: that the step has made.
            claims: what its members have added to it.
            inherited: an earlier master may have granted the tasks.

        Raises:
            RuntimeError: a minibatch is missing or repeated. An internal error.
        """
        counts = self._counts.counts()
        for task in {claim.lease.task for claim in claims} - counts.keys() if inherited else ():
            self._counts.grant(task, Token(0))
            self._counts.revoke(task, Token(0))
            counts[task] = AppliedCount()
        for claim in claims:
            counted = counts.get(claim.lease.task)
            if counted is None or counted.minibatches != claim.minibatch:
                raise RuntimeError(f"{claim} follows {counted}")
            self._counts.advance(claim.lease.task, claim.minibatches, claim.records)
        self.iterations += 1
        self.version = version
        self.generation += 1

    def flush(self) -> bool:
        """Decide on an update of the accumulated gradients though some are missing (sync mode).

        For the end of an epoch, when no minibatch is left that could complete the update. While a
        step permit is held a gradient is still on its way, and nothing is done.

        Returns:
            Whether there is a new version.
        """
        if self._permits.holders or not self._permits.accumulated:
            return False
        self._advance(1)
        return True

    def restore_best(self) -> None:
        """Training is over, and the best values become the present ones: a new version."""
        self._next_version(1)

    def finish(self) -> bool:
        """Training is over: decide whether the optimizer's average becomes the values.

        Returns:
            Whether there is a new version.

        Raises:
            RuntimeError: accumulated gradients wait for others that are still being computed.
        """
        if self._permits.accumulated:
            raise RuntimeError("training is not over: a gradient is still being computed")
        if not self._keeps_average or not self.iterations:
            return False
        self._next_version(1)
        return True

    # --- state -----------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """Return the state as plain values for a snapshot, without frozen versions and permits."""
        return {
            "mode": describe(self.mode),
            "initialized": self.initialized,
            "version": self.version,
            "iterations": self.iterations,
            "learning_rate": self.learning_rate,
            "applied": self._counts.describe(),
            "accumulated": self._permits.accumulated,
        }

    def restore(self, meta: Mapping[str, Any]) -> None:
        """Take over a state; for a new ledger. Permits are dropped: their holders ask again."""
        self.initialized = meta["initialized"]
        self.version = Version(meta["version"])
        self.iterations = meta["iterations"]
        self.learning_rate = meta["learning_rate"]
        self._counts.restore(meta["applied"])
        self._permits.accumulated = meta["accumulated"] if self.limits_permits else 0

    def check_invariants(self) -> None:
        """Raise ``AssertionError`` if an invariant is violated."""
        assert self.version >= self.iterations, "an update without a version"
        permits = self._permits
        if permits.capacity is None:
            assert not permits.holders, "a step permit in a mode without"
            assert not permits.accumulated, "a gradient that is not applied in a mode without"
            return
        assert permits.accumulated < permits.capacity, "a complete update was not made"
        assert len(permits.holders) + permits.accumulated <= permits.capacity, "too many permits"
        stray = [task for task in permits.holders if not self._counts.has_lease(task)]
        assert not stray, f"a step permit without a lease: {stray}"

    # --- inside ----------------------------------------------------------------------------

    def _advance(self, updates: int) -> None:
        self.iterations += updates
        self._next_version(updates)

    def _next_version(self, updates: int) -> None:
        self.version = Version(self.version + updates)
        self.generation += 1
        self._permits.reset()

    def _is_stale(self, staleness: int) -> bool:
        if staleness < 0:  # computed from a version that a restart has undone
            return True
        match self.mode:
            case Async():
                return False
            case Bounded(max_staleness):
                return staleness > max_staleness
            case Sync() | Replicated():
                return staleness > 0

    def _end_lease(self, task: TaskKey) -> bool:
        """Wake the worker that waits for this lease's permit; return whether it had one."""
        self.generation += 1
        return self._permits.release(task)

    def _result(
        self, outcome: PushOutcome, staleness: int, *, new_version: bool = False, detail: str = ""
    ) -> PushResult:
        return PushResult(outcome, self.version, max(staleness, 0), new_version, detail)
