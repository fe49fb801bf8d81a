"""Decides when to request the next lease while a task is in progress."""

from __future__ import annotations


def is_due(*, done: int, expected: int, step_s: float | None, lead_s: float) -> bool:
    """Whether so little of the present task is left that the next one should be fetched.

    Early enough that the worker never waits for it; not earlier, since no other worker can do
    the task of a lease that is held unused.

    Args:
        done: minibatches of the task that are done.
        expected: minibatches that the task is thought to have.
        step_s: seconds of one step; None while unknown.
        lead_s: how long fetching a lease and building its pipeline may take.
    """
    left = max(0, expected - done)
    if step_s is None:
        return left <= 1
    return left * step_s <= lead_s


def expected_minibatches(records: int, minibatch_size: int) -> int:
    """Return how many minibatches a range of records makes if each record is one example."""
    return -(-records // minibatch_size) if minibatch_size else 0
