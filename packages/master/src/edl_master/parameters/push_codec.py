"""Pushes and rows, between protobuf and the core's types."""

from __future__ import annotations

import math
from collections.abc import Sequence

from edl_master.codec import lease_from, malformed_message
from edl_master.core import events
from edl_master.core.identifiers import HeldLease, Version, WorkerId
from edl_master.core.parameters.push import MinibatchKey, PushClaim, PushOutcome, PushResult
from edl_master.core.parameters.tables.payloads import RowIds, RowPayload
from edl_proto.v1 import parameters_pb2, task_pb2

_MAX_STEP_S = 1e6
"""The longest credible step; a worker that reports more is faulty."""

_OUTCOMES = {
    PushOutcome.APPLIED: parameters_pb2.APPLIED,
    PushOutcome.ALREADY_APPLIED: parameters_pb2.ALREADY_APPLIED,
    PushOutcome.STALE: parameters_pb2.STALE,
    PushOutcome.REFUSED: parameters_pb2.REFUSED,
    PushOutcome.OUT_OF_ORDER: parameters_pb2.OUT_OF_ORDER,
    PushOutcome.INVALID: parameters_pb2.INVALID,
}


def claim_from(message: parameters_pb2.PushClaim, worker: WorkerId) -> PushClaim:
    """Convert the claim of a worker's push.

    Raises:
        EdlError: USAGE; it claims no records, or its task is malformed.
    """
    if message.records < 1:
        raise malformed_message("a gradient must be of at least one record")
    lease = lease_from(message.lease)
    return PushClaim(
        task=lease.task,
        token=lease.token,
        minibatch=message.minibatch,
        records=message.records,
        base_version=Version(message.base_version),
        minibatches=message.minibatches or 1,
        worker=worker,
    )


def compute_s_from(step: parameters_pb2.StepReport) -> float:
    """Return how long a step has computed, in seconds; 0 for what is no such time, as NaN."""
    return step.compute_s if 0 <= step.compute_s < _MAX_STEP_S else 0.0


def key_from(lease: task_pb2.LeaseRef, minibatch: int) -> MinibatchKey:
    """Return the key under which the push ledger counts a minibatch; raises as ``task_from``."""
    held = lease_from(lease)
    return held.task, held.token, minibatch


def squares_from(squares: Sequence[float]) -> tuple[float, ...]:
    """Return the sums of squares of the gradient's parts, for clipping by norm.

    Raises:
        EdlError: USAGE; one is negative or not finite.
    """
    if not all(0 <= square < math.inf for square in squares):
        raise malformed_message("a sum of squares must be a number, and not negative")
    return tuple(squares)


def event_from(
    worker: WorkerId,
    claim: PushClaim,
    step: parameters_pb2.StepReport,
    result: PushResult,
) -> events.MinibatchApplied | events.GradientRejected | None:
    """Return the event for the job that a push is; None if the job has had it before."""
    match result.outcome:
        case PushOutcome.APPLIED:
            return events.MinibatchApplied(
                worker=worker,
                lease=HeldLease(claim.task, claim.token),
                records=claim.records,
                version=result.version,
                loss=step.loss,
                staleness=result.staleness,
                minibatches=claim.minibatches,
            )
        case PushOutcome.ALREADY_APPLIED:
            return None
        case _:
            return events.GradientRejected()


def outcome_to(outcome: PushOutcome) -> parameters_pb2.PushOutcome.ValueType:
    """Return the outcome of a push, as a message."""
    return _OUTCOMES[outcome]


def row_ids_from(messages: Sequence[parameters_pb2.TableRows], ids: memoryview) -> RowIds | None:
    """Return the request for rows, whose ids lie one after the other; None if it names no table."""
    if not messages:
        return None
    tables, counts = zip(*((one.table, one.count) for one in messages), strict=True)
    return RowIds(tables, counts, ids)


def row_payload_from(
    messages: Sequence[parameters_pb2.TableRows], ids: memoryview, values: memoryview
) -> RowPayload | None:
    """Return rows: all ids, and all values; None if no table is named."""
    wanted = row_ids_from(messages, ids)
    return RowPayload(wanted.tables, wanted.counts, ids, values) if wanted else None
