"""A lease is its holder's: tokens only count up, so another worker can guess them."""

from __future__ import annotations

import numpy as np
import pytest

from edl_master.core.identifiers import TaskKey, Token, Version, WorkerId
from edl_master.core.parameters.applied_counts import AppliedCounts, PushVerdict
from edl_master.core.parameters.commands import CommitInitialValues, CommitPush
from edl_master.core.parameters.layout import Layout, Variable
from edl_master.core.parameters.modes import Async, Sync, UpdateMode
from edl_master.core.parameters.permits import PermitGranted, PermitPending, PermitRefused
from edl_master.core.parameters.push import Gradient
from edl_master.core.parameters.push_ledger import PushLedger
from edl_master.core.parameters.shard import ProtocolViolation, Shard
from edl_master.core.parameters.store import ParameterStore

from .planes import A, B, sgd

ONE, TWO = Token(1), Token(2)
LAYOUT = Layout([Variable("w", (3,), "float32", True)])
MINE, OTHER = WorkerId(1), WorkerId(2)


def test_another_worker_cannot_use_a_token() -> None:
    counts = AppliedCounts()
    counts.grant(A, ONE, MINE)
    assert counts.verdict(A, ONE, 0, worker=OTHER) is PushVerdict.REFUSED
    assert counts.verdict(A, ONE, 0, worker=MINE) is PushVerdict.DUE
    counts.advance(A, 1, 2)
    assert counts.verdict(A, ONE, 0, worker=OTHER) is PushVerdict.REFUSED
    assert counts.verdict(A, ONE, 0, worker=MINE) is PushVerdict.ALREADY_APPLIED


def test_the_next_holder_has_the_next_token() -> None:
    counts = AppliedCounts()
    counts.grant(A, ONE, MINE)
    counts.grant(A, TWO, OTHER)
    assert counts.verdict(A, TWO, 0, worker=OTHER) is PushVerdict.DUE
    assert counts.verdict(A, TWO, 0, worker=MINE) is PushVerdict.REFUSED


def test_a_restored_lease_belongs_to_the_holder_of_its_token() -> None:
    counts, restored = AppliedCounts(), AppliedCounts()
    counts.grant(A, ONE, MINE)
    restored.restore(counts.describe())
    assert restored.verdict(A, ONE, 0, worker=OTHER) is PushVerdict.DUE


@pytest.mark.parametrize("mode", [Async(), Sync(2)], ids=str)
def test_another_worker_cannot_take_a_step_permit(mode: UpdateMode) -> None:
    """It would take the permit of a task that its holder has in advance: both would wait for ever.

    The holder's present task could then have none, and the update would lack a gradient.
    """
    ledger = PushLedger(mode)
    ledger.initialize()
    ledger.grant(A, ONE, MINE)
    ledger.grant(B, TWO, MINE)
    assert ledger.request_permit(B, TWO, OTHER) == PermitRefused()
    assert ledger.permits_held == 0
    assert ledger.request_permit(A, ONE, MINE) == PermitGranted(Version(0))


def test_a_permit_of_another_lease_would_hold_up_its_holder() -> None:
    """This is the reason for the test above."""
    ledger = PushLedger(Sync(1))
    ledger.initialize()
    ledger.grant(A, ONE, MINE)
    ledger.grant(B, TWO, MINE)
    assert isinstance(ledger.request_permit(B, TWO, MINE), PermitGranted)
    assert isinstance(ledger.request_permit(A, ONE, MINE), PermitPending)


def test_leases_of_an_earlier_master_cannot_be_used() -> None:
    before, after = PushLedger(Async()), PushLedger(Async())
    before.initialize()
    before.grant(A, ONE, MINE)
    after.restore(before.describe())
    after.revoke_all()
    assert after.request_permit(A, ONE, OTHER) == PermitRefused()
    assert after.request_permit(A, ONE, MINE) == PermitRefused()
    assert after.grant(A, TWO, OTHER) == 0
    assert after.request_permit(A, TWO, OTHER) == PermitGranted(Version(0))


class _Values:
    """A shard of zeros for which workers prepare gradients."""

    def __init__(self) -> None:
        self.shard = Shard(ParameterStore(LAYOUT, sgd(), Async()))
        self.shard.propose(MINE, bytes(LAYOUT.parameter_nbytes))
        self.shard.apply(CommitInitialValues(MINE))

    def prepare(self, worker: WorkerId, task: TaskKey, token: Token, gradient: float) -> None:
        values = np.full(LAYOUT.gradient_nbytes // 4, gradient, np.float32)
        prepared = self.shard.store.prepare(Gradient(memoryview(values).cast("B")))
        self.shard.prepare(worker, (task, token, 0), prepared)

    def commit(self, worker: WorkerId, task: TaskKey, token: Token) -> float:
        """Commit a gradient; returns the first value after it."""
        version = Version(self.shard.store.version + 1)
        self.shard.apply(CommitPush(task, token, 0, 1, version, worker=worker))
        out = np.zeros(LAYOUT.parameter_nbytes // 4, np.float32)
        self.shard.store.read_parameters(memoryview(out).cast("B"))
        return float(out[0])


def test_another_worker_cannot_replace_a_gradient_that_is_prepared() -> None:
    """A push to parameter servers has two calls, and others may call between them."""
    values = _Values()
    values.prepare(MINE, A, ONE, -1)
    values.prepare(OTHER, A, ONE, 1000)
    assert values.commit(MINE, A, ONE) == 1.0


def test_another_worker_cannot_drop_a_gradient_that_is_prepared() -> None:
    """What is committed and not there ends the job."""
    values = _Values()
    values.prepare(MINE, A, ONE, -1)
    values.prepare(OTHER, A, ONE, 1000)
    values.prepare(OTHER, B, TWO, 1000)
    assert values.commit(MINE, A, ONE) == 1.0
    with pytest.raises(ProtocolViolation, match="never prepared"):
        values.commit(MINE, B, TWO)
