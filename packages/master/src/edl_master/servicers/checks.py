"""The checks that every servicer makes of a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from edl_master.core.parameters.layout import Layout
from edl_master.core.parameters.permits import PermitGranted, PermitRefused
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.transport.parameters import MAX_ROW_BYTES
from edl_proto.v1 import parameters_pb2

MAX_WAIT_S = 30.0
"""A call occupies a thread while it waits; a caller that wants to wait longer calls again."""


def check_incarnation(mine: str, named: str) -> None:
    """Refuse calls for another master of this job. Raises: EdlError: STALE_INCARNATION."""
    if named != mine:
        raise EdlError(
            ErrorCode.STALE_INCARNATION,
            f"this master is incarnation {mine}, not {named or 'unnamed'}",
            where="the job's master",
            remedy="Register again, and drop results for the other incarnation.",
        )


class Caller(Protocol):
    """The part of a request header that names its sender."""

    worker_id: int
    incarnation: str
    layout_fingerprint: str


def check_fingerprint(expected: str, fingerprint: str) -> None:
    """Refuse a call about another model. Raises: EdlError: SHAPE_MISMATCH."""
    if fingerprint != expected:
        raise EdlError(
            ErrorCode.SHAPE_MISMATCH,
            "these parameters have another layout than the job's",
            where="parameters",
            remedy="All workers must load the same model file and build it the same way.",
        )


def check_permit(permit: PermitGranted | PermitRefused | None) -> None:
    """Refuse to answer a request for a step permit of a lease that is lost.

    Raises:
        EdlError: STALE_LEASE.
    """
    if isinstance(permit, PermitRefused):
        raise EdlError(
            ErrorCode.STALE_LEASE,
            "the step permit was requested for a lease that is not current",
            where="parameters",
            remedy="Drop the task and ask for another one.",
        )


def bounded_wait(wait_s: float) -> float:
    """Limit the time that a call asks to wait."""
    return min(max(wait_s, 0.0), MAX_WAIT_S)


def check_table(table: int, layout: Layout) -> None:
    """Refuse what names a table that the job's model does not have.

    Raises:
        EdlError: SHAPE_MISMATCH.
    """
    if table >= len(layout.tables):
        raise _mismatch(f"there is no embedding table {table}")


def rows_nbytes(rows: Sequence[parameters_pb2.TableRows], layout: Layout) -> tuple[int, int]:
    """Return the bytes of the ids and of the values of rows, before any of them is read.

    Raises:
        EdlError: SHAPE_MISMATCH, a table is unknown or appears twice, or these are too many.
    """
    ids = values = 0
    tables = layout.tables
    for one in rows:
        number, count = one.table, one.count
        if number >= len(tables):
            check_table(number, layout)
        ids += 8 * count
        values += tables[number].row_nbytes * count
    if len(rows) > 1 and len({one.table for one in rows}) < len(rows):
        raise _mismatch("an embedding table appears twice")
    if ids + values > MAX_ROW_BYTES:
        raise _mismatch(f"more than {MAX_ROW_BYTES} bytes of rows in one request")
    return ids, values


def check_size(what: str, nbytes: int, expected: int) -> None:
    """Refuse a payload that has not the size of the layout. Raises: EdlError: SHAPE_MISMATCH."""
    if nbytes != expected:
        raise EdlError(
            ErrorCode.SHAPE_MISMATCH,
            f"{what} must have {expected} bytes, not {nbytes}",
            where="parameters",
            remedy="All workers must load the same model file and build it the same way.",
        )


def _mismatch(what: str) -> EdlError:
    return EdlError(
        ErrorCode.SHAPE_MISMATCH,
        what,
        where="parameters",
        remedy="All workers must load the same model file and build it the same way; "
        "a minibatch that needs so many rows must be made smaller.",
    )
