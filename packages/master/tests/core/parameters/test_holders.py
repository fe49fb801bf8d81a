"""A lease is its holder's: tokens only count up, so another worker can guess them."""

from __future__ import annotations

from edl_master.core.identifiers import Token, WorkerId
from edl_master.core.parameters.applied_counts import AppliedCounts, PushVerdict

from .planes import A

ONE, TWO = Token(1), Token(2)
MINE, OTHER = WorkerId(1), WorkerId(2)


def test_another_worker_cannot_use_a_token() -> None:
    counts = AppliedCounts()
    counts.grant(A, ONE, MINE)
    assert counts.verdict(A, ONE, 0, worker=OTHER) is PushVerdict.REFUSED
    assert counts.verdict(A, ONE, 0, worker=MINE) is PushVerdict.DUE
    counts.advance(A)
    assert counts.verdict(A, ONE, 0, worker=OTHER) is PushVerdict.REFUSED
    assert counts.verdict(A, ONE, 0, worker=MINE) is PushVerdict.ALREADY_APPLIED


def test_the_next_holder_has_the_next_token() -> None:
    counts = AppliedCounts()
    counts.grant(A, ONE, MINE)
    counts.grant(A, TWO, OTHER)
    assert counts.verdict(A, TWO, 0, worker=OTHER) is PushVerdict.DUE
    assert counts.verdict(A, TWO, 0, worker=MINE) is PushVerdict.REFUSED


def test_a_restored_lease_is_that_of_whoever_has_its_token() -> None:
    counts, restored = AppliedCounts(), AppliedCounts()
    counts.grant(A, ONE, MINE)
    restored.restore(counts.describe())
    assert restored.verdict(A, ONE, 0, worker=OTHER) is PushVerdict.DUE
