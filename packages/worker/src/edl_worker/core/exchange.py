"""Requests to the parameter plane and its replies, without their payloads."""

from __future__ import annotations

from dataclasses import dataclass

from edl_worker.core.job import WirePrecision
from edl_worker.core.push_pipeline import PushOutcome
from edl_worker.core.tasks import LeaseRef


@dataclass(frozen=True, slots=True)
class CallerIdentity:
    """The sender of a request, the master that it is for, and the layout of its payload."""

    worker_id: int
    incarnation: str
    layout_fingerprint: str


@dataclass(frozen=True, slots=True)
class TableRows:
    """The number of rows of a table, which is numbered as in ``ModelDescription.tables``."""

    table: int
    count: int


@dataclass(frozen=True, slots=True)
class PushRequest:
    """A push of one gradient, or of the difference that local steps have made.

    Attributes:
        minibatch: index of the first minibatch in the task.
        minibatches: how many minibatches from that index on the push stands for.
        records: elements of these minibatches.
        base_version: version on which the gradient was computed.
        compute_s: time that computing took.
        wants_values: the reply should bring newer parameters, and in synchronous mode a permit.
        gradient_nbytes, state_nbytes: sizes of the first two payloads.
        rows: rows whose gradients are pushed.
        next_rows: rows that the reply should bring.
        precision: of gradient and rows.
        reply_precision: that the reply should have.
    """

    lease: LeaseRef
    minibatch: int
    minibatches: int
    records: int
    base_version: int
    compute_s: float
    wants_values: bool
    loss: float = 0.0
    gradient_nbytes: int = 0
    state_nbytes: int = 0
    rows: tuple[TableRows, ...] = ()
    next_rows: tuple[TableRows, ...] = ()
    precision: WirePrecision = WirePrecision.FLOAT32
    reply_precision: WirePrecision = WirePrecision.FLOAT32


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A request for parameters and rows.

    Attributes:
        have_version: version that the worker has; values come only if they are newer.
        frozen: name of a frozen version; empty: the newest version.
        permit_for: wait for a step permit for this lease.
        rows: rows to fetch too.
        precision: in which values and rows should be sent.
    """

    have_version: int | None = None
    frozen: str = ""
    permit_for: LeaseRef | None = None
    rows: tuple[TableRows, ...] = ()
    precision: WirePrecision = WirePrecision.FLOAT32


@dataclass(frozen=True, slots=True)
class ShardReadRequest:
    """A request to read values and rows from parameter servers.

    Attributes:
        frozen: name of a frozen version; empty: the newest version.
        only_rows: without values.
        rows: rows to read.
        precision: in which values and rows should be sent.
    """

    frozen: str = ""
    only_rows: bool = False
    rows: tuple[TableRows, ...] = ()
    precision: WirePrecision = WirePrecision.FLOAT32


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """A page of a frozen version's table.

    Attributes:
        dim: numbers of a row.
        cursor: 0, or that of the last page.
        most: rows of a page, at most.
    """

    frozen: str
    table: int
    dim: int
    cursor: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterReply:
    """A reply of the parameter plane; values and rows are in the caller's receive buffers.

    Attributes:
        version: of the values.
        nbytes: of the values; 0: none came.
        rows_nbytes: of the rows.
        precision: of values and rows.
        permit_granted: the worker holds a step permit.
        initialized: the plane has values at all.
    """

    version: int = 0
    nbytes: int = 0
    rows_nbytes: int = 0
    precision: WirePrecision = WirePrecision.FLOAT32
    permit_granted: bool = False
    initialized: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PushReply(ParameterReply):
    """The reply to a push: how the gradient was judged, and what came with the judgement."""

    outcome: PushOutcome


@dataclass(frozen=True, slots=True)
class RowPage:
    """Some rows of a frozen version's table.

    Attributes:
        ids: int64, little-endian.
        rows: float32, one row for each id.
        cursor: where the next page starts.
        more: whether there is a next page.
    """

    ids: memoryview
    rows: memoryview
    cursor: int
    more: bool
