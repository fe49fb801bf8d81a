"""Calls of the parameter plane, without the bytes that go with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from edl_proto.v1 import parameters_pb2 as pb
from edl_worker.codec.jobs import decode_precision, encode_precision
from edl_worker.codec.tasks import encode_ref
from edl_worker.core.exchange import (
    CallerIdentity,
    ParameterReply,
    PullRequest,
    PushReply,
    PushRequest,
    ScanRequest,
    ShardReadRequest,
    TableRows,
)
from edl_worker.core.push_pipeline import PushOutcome
from edl_worker.core.tasks import LeaseRef


def _fields(caller: CallerIdentity) -> dict[str, Any]:
    """Return the fields of every header that name its sender."""
    return {name: getattr(caller, name) for name in CallerIdentity.__slots__}


def encode_table_rows(rows: Iterable[TableRows]) -> list[pb.TableRows]:
    """Return the numbers of rows per embedding table, as messages."""
    return [pb.TableRows(table=one.table, count=one.count) for one in rows]


# --- every process that has values -------------------------------------------------------------


def encode_put_rows(caller: CallerIdentity, table: int, count: int) -> pb.PutRowsHeader:
    """Return initial values of some rows of a table."""
    return pb.PutRowsHeader(**_fields(caller), rows=pb.TableRows(table=table, count=count))


def encode_scan(
    caller: CallerIdentity, request: ScanRequest, log_index: int = 0
) -> pb.ScanRowsHeader:
    """Return the request for a page of a table."""
    return pb.ScanRowsHeader(
        **_fields(caller),
        frozen=request.frozen,
        table=request.table,
        cursor=request.cursor,
        most=request.most,
        log_index=log_index,
    )


# --- a master that has the values itself ---------------------------------------------------------


def encode_initialize(caller: CallerIdentity, nbytes: int) -> pb.InitializeHeader:
    """Return the offer of initial values."""
    return pb.InitializeHeader(**_fields(caller), nbytes=nbytes)


def encode_pull(caller: CallerIdentity, request: PullRequest, wait_s: float) -> pb.PullHeader:
    """Return the header of a pull."""
    return pb.PullHeader(
        **_fields(caller),
        have_version=request.have_version,
        frozen=request.frozen,
        permit_for=None if request.permit_for is None else encode_ref(request.permit_for),
        wait_s=wait_s,
        rows=encode_table_rows(request.rows),
        precision=encode_precision(request.precision),
    )


def decode_pull(reply: pb.PullReply) -> ParameterReply:
    """Return the header of the answer to a pull."""
    return ParameterReply(
        version=reply.version,
        nbytes=reply.nbytes,
        rows_nbytes=reply.rows_nbytes,
        precision=decode_precision(reply.precision),
        permit_granted=reply.permit_granted,
        initialized=reply.initialized,
    )


def encode_push(caller: CallerIdentity, request: PushRequest, wait_s: float) -> pb.PushHeader:
    """Return the header of a push."""
    header = pb.PushHeader(
        **_fields(caller),
        claim=_claim(request),
        gradient=_gradient(request),
        step=_step(request),
    )
    if request.wants_values:
        header.next.SetInParent()
        header.next.wait_s = wait_s
        header.next.rows.extend(encode_table_rows(request.next_rows))
        header.next.precision = encode_precision(request.reply_precision)
    return header


def decode_push(reply: pb.PushReply) -> PushReply:
    """Return the header of the answer to a push."""
    return PushReply(
        outcome=decode_outcome(reply.outcome),
        version=reply.version,
        nbytes=reply.nbytes,
        rows_nbytes=reply.rows_nbytes,
        precision=decode_precision(reply.precision),
        permit_granted=reply.permit_granted,
    )


def decode_outcome(outcome: pb.PushOutcome.ValueType) -> PushOutcome:
    """Return the judgement of a push."""
    return PushOutcome[pb.PushOutcome.Name(outcome)]


def _claim(request: PushRequest) -> pb.PushClaim:
    return pb.PushClaim(
        lease=encode_ref(request.lease),
        minibatch=request.minibatch,
        minibatches=request.minibatches,
        records=request.records,
        base_version=request.base_version,
    )


def _gradient(request: PushRequest) -> pb.GradientHeader:
    return pb.GradientHeader(
        nbytes=request.gradient_nbytes,
        state_nbytes=request.state_nbytes,
        rows=encode_table_rows(request.rows),
        precision=encode_precision(request.precision),
    )


def _step(request: PushRequest) -> pb.StepReport:
    return pb.StepReport(loss=request.loss, compute_s=request.compute_s)


# --- a parameter server ------------------------------------------------------------------------


def encode_propose(caller: CallerIdentity, nbytes: int) -> pb.ProposeHeader:
    """Return the part of initial values that one server gets."""
    return pb.ProposeHeader(**_fields(caller), nbytes=nbytes)


def encode_prepare(caller: CallerIdentity, part: PushRequest, log_index: int) -> pb.PrepareHeader:
    """Return the part of a gradient that one server gets."""
    return pb.PrepareHeader(
        **_fields(caller),
        lease=encode_ref(part.lease),
        minibatch=part.minibatch,
        gradient=_gradient(part),
        log_index=log_index,
    )


def encode_read(caller: CallerIdentity, part: ShardReadRequest, log_index: int) -> pb.ReadHeader:
    """Return the header of a read from one server."""
    return pb.ReadHeader(
        **_fields(caller),
        frozen=part.frozen,
        only_rows=part.only_rows,
        rows=encode_table_rows(part.rows),
        precision=encode_precision(part.precision),
        log_index=log_index,
    )


# --- the coordinator of parameter servers --------------------------------------------------------


def encode_commit_initial_values(caller: CallerIdentity) -> pb.CommitInitialValuesRequest:
    """Return the header for committing initial values, of which all servers have their parts."""
    return pb.CommitInitialValuesRequest(**_fields(caller))


def encode_commit(
    caller: CallerIdentity, request: PushRequest, squares: Sequence[float], wait_s: float
) -> pb.CommitRequest:
    """Return the header for committing a push, which all servers have prepared."""
    commit = pb.CommitRequest(
        **_fields(caller), claim=_claim(request), step=_step(request), squares=squares
    )
    if request.wants_values:
        commit.permit_wait_s = wait_s
    return commit


def encode_permit(
    caller: CallerIdentity, permit_for: LeaseRef | None = None, wait_s: float = 0.0
) -> pb.PermitRequest:
    """Return the request for the newest version, and for a step permit."""
    return pb.PermitRequest(
        **_fields(caller),
        permit_for=None if permit_for is None else encode_ref(permit_for),
        wait_s=wait_s,
    )
