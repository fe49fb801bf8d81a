"""What every servicer checks of a request."""

from __future__ import annotations

from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2

LONGEST_WAIT_S = 30.0
"""A call occupies a thread while it waits; who wants to wait longer asks again."""


def check_incarnation(mine: str, named: str) -> None:
    """Refuse what was said to another master of this job.

    Raises:
        EdlError: STALE_INCARNATION.
    """
    if named != mine:
        raise EdlError(
            error_pb2.STALE_INCARNATION,
            f"this master is incarnation {mine}, not {named or 'unnamed'}",
            where="the job's master",
            remedy="Register again and drop what was computed for the other one.",
        )


def bounded_wait(wait_s: float) -> float:
    """How long a call may wait."""
    return min(max(wait_s, 0.0), LONGEST_WAIT_S)
