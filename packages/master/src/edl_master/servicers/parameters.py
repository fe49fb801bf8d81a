"""Parameters, as called by workers: headers decoded, payloads never wrapped."""

from __future__ import annotations

import time
from typing import TypeVar

from edl_master import codec
from edl_master.adapters.buffer_pool import BufferPool
from edl_master.control.job_controller import JobController
from edl_master.core.identifiers import Version, WorkerId
from edl_master.core.parameters.exchange import (
    PermitGranted,
    PermitRefused,
    PushKind,
    PushOutcome,
)
from edl_master.core.parameters.layout import Layout
from edl_master.core.parameters.quantization import Precision, Span, wire_nbytes
from edl_master.guarded_plane import GuardedPlane, Pulled
from edl_master.metrics import Metrics
from edl_master.servicers.checks import (
    bounded_wait,
    check_incarnation,
    check_size,
    check_table,
    rows_nbytes,
)
from edl_master.servicers.wire_layout import (
    WireLayout,
    all_fit,
    nbytes_of,
    receive,
    rows_span,
    send,
)
from edl_proto.errors import EdlError
from edl_proto.transport.parameters import MOST_ROW_BYTES, Call, FrameError, Frames, Pieces, fill
from edl_proto.v1 import error_pb2, parameters_pb2

_METHODS = ("initialize", "pull", "push", "put-rows", "scan-rows")

Header = (
    parameters_pb2.InitializeHeader
    | parameters_pb2.PullHeader
    | parameters_pb2.PushHeader
    | parameters_pb2.PutRowsHeader
    | parameters_pb2.ScanRowsHeader
)
H = TypeVar("H", bound=Header)


class ParametersServicer:
    """Serves one job's parameters as raw frames.

    Sizes are compared with the layout before any payload is read: a header cannot make the
    master take more memory than the model has.

    Args:
        controller: the job, which is told what became of gradients; None where that is decided
            elsewhere.
        plane: the parameters.
        buffers: where payloads are received.
        metrics: durations and bytes.
        incarnation: of this master.
    """

    def __init__(
        self,
        controller: JobController | None,
        plane: GuardedPlane,
        buffers: BufferPool,
        metrics: Metrics,
        incarnation: str,
    ) -> None:
        self._controller = controller
        self._plane = plane
        self._buffers = buffers
        self._metrics = metrics
        self._incarnation = incarnation
        self._layouts: WireLayout | None = None
        durations = metrics.parameter_request_duration
        self._durations = {name: durations.labels(name) for name in _METHODS}
        self._received = metrics.parameter_bytes.labels("received")
        self._sent = metrics.parameter_bytes.labels("sent")
        self._computing = metrics.step_duration.labels("compute")

    def initialize(self, frames: Frames, call: Call) -> Pieces:
        started = time.perf_counter()
        header = first_frame(parameters_pb2.InitializeHeader(), frames)
        layout = self._check(header)
        check_size("the initial values", header.nbytes, layout.parameter_nbytes)
        with self._buffers.lent(header.nbytes) as values:
            fill(frames, values)
            accepted, version = self._plane.initialize(values, WorkerId(header.worker_id))
        self._received.inc(header.nbytes)
        self._took("initialize", started)
        reply = parameters_pb2.InitializeReply(
            accepted=accepted, version=version, mark=self._plane.mark
        )
        yield reply.SerializeToString()

    def pull(self, frames: Frames, call: Call) -> Pieces:
        started = time.perf_counter()
        header = first_frame(parameters_pb2.PullHeader(), frames)
        layout = self._check(header)
        ids_nbytes, _ = rows_nbytes(header.rows, layout)
        with (
            self._buffers.at_least(ids_nbytes) as ids,
            self._plane.pulled(
                have=Version(header.have_version) if header.HasField("have_version") else None,
                frozen=header.frozen,
                rows=codec.row_ids_from(header.rows, _filled(frames, ids)),
                slot_for=codec.lease_from(header.slot_for) if header.HasField("slot_for") else None,
                wait_s=bounded_wait(header.wait_s),
                is_wanted=call.is_active,
                mark=header.mark,
                only_rows=header.only_rows,
            ) as pulled,
        ):
            self._took("pull", started)
            if isinstance(pulled.slot, PermitRefused):
                raise EdlError(
                    error_pb2.STALE_LEASE,
                    "the lease that a step permit was asked for is not current",
                    where="parameters",
                    remedy="Drop the task and ask for another one.",
                )
            reply = parameters_pb2.PullReply(
                version=pulled.version,
                slot_granted=isinstance(pulled.slot, PermitGranted),
                initialized=pulled.initialized,
                mark=self._plane.mark,
            )
            yield from self._answer(reply, pulled, layout, codec.precision_from(header.precision))

    def push(self, frames: Frames, call: Call) -> Pieces:
        started = time.perf_counter()
        header, layout, precision = self._push_header(frames)
        ids_nbytes, values_nbytes = rows_nbytes(header.rows, layout)
        next_nbytes, _ = rows_nbytes(header.next_rows, layout)
        with self._buffers.at_least(ids_nbytes + next_nbytes + values_nbytes) as rows:
            yield from self._push(header, layout, precision, frames, rows, started, call)

    def _push_header(self, frames: Frames) -> tuple[parameters_pb2.PushHeader, Layout, Precision]:
        """The header of a push, whose values have the sizes of the layout; what they travel as."""
        header = first_frame(parameters_pb2.PushHeader(), frames)
        layout = self._check(header)
        precision = codec.precision_from(header.precision)
        expected = wire_nbytes(self._wire_layout(layout).gradient, precision)
        check_size("the gradient", header.gradient_nbytes, expected)
        if header.state_nbytes:
            check_size("the state delta", header.state_nbytes, layout.state_nbytes)
        return header, layout, precision

    def _wire_layout(self, layout: Layout) -> WireLayout:
        if self._layouts is None or self._layouts.layout is not layout:
            self._layouts = WireLayout.of(layout)
        return self._layouts

    def _fill(
        self, frames: Frames, target: memoryview, spans: tuple[Span, ...], precision: Precision
    ) -> None:
        receive(frames, target, spans, precision, self._buffers)

    def _fill_rows(
        self, frames: Frames, target: memoryview, values_start: int, precision: Precision
    ) -> None:
        """Ids of rows up to ``values_start``, then their values."""
        if precision is Precision.FLOAT32:
            fill(frames, target)
            return
        values = target[values_start:]
        fill(frames, target[:values_start])
        self._fill(frames, values, rows_span(values.nbytes), precision)

    def _push(
        self,
        header: parameters_pb2.PushHeader,
        layout: Layout,
        precision: Precision,
        frames: Frames,
        rows: memoryview,
        started: float,
        call: Call,
    ) -> Pieces:
        ids_nbytes, _ = rows_nbytes(header.rows, layout)
        values_start = ids_nbytes + rows_nbytes(header.next_rows, layout)[0]
        with (
            self._buffers.lent(layout.gradient_nbytes) as gradient,
            self._buffers.lent(header.state_nbytes) as state,
        ):
            self._fill(frames, gradient, self._wire_layout(layout).gradient, precision)
            fill(frames, state)
            self._fill_rows(frames, rows, values_start, precision)
            row_gradients = codec.row_payloads_from(
                header.rows, rows[:ids_nbytes], rows[values_start:], layout
            )
            outcome = self._plane.push(codec.push_from(header, gradient, state, row_gradients))
        values = rows_span(rows.nbytes - values_start)
        self._count(header, outcome, values_start + wire_nbytes(values, precision))
        # Before anything is answered or waited for, so that the job knows what the worker knows.
        fact = codec.pushed_from(header, outcome)
        if fact is not None and self._controller is not None:
            self._controller.handle(fact)
        reply = parameters_pb2.PushReply(
            outcome=codec.outcome_to(outcome.kind),
            version=outcome.version,
            staleness=max(0, outcome.staleness),
            mark=self._plane.mark,
        )
        if not header.pull or outcome.kind not in _GOING_ON:
            self._took("push", started)
            yield reply.SerializeToString()
            return
        with self._plane.pulled(
            have=Version(header.base_version),
            rows=codec.row_ids_from(header.next_rows, rows[ids_nbytes:values_start]),
            slot_for=codec.lease_from(header.lease),
            wait_s=bounded_wait(header.wait_s),
            is_wanted=call.is_active,
        ) as pulled:
            self._took("push", started)
            reply.version = pulled.version
            reply.slot_granted = isinstance(pulled.slot, PermitGranted)
            wanted = codec.precision_from(header.answer_precision)
            yield from self._answer(reply, pulled, layout, wanted)

    def put_rows(self, frames: Frames, call: Call) -> Pieces:
        started = time.perf_counter()
        header = first_frame(parameters_pb2.PutRowsHeader(), frames)
        layout = self._check(header)
        ids_nbytes, values_nbytes = rows_nbytes([header.rows], layout)
        with self._buffers.at_least(ids_nbytes + values_nbytes) as data:
            fill(frames, data)
            (rows,) = codec.row_payloads_from(
                [header.rows], data[:ids_nbytes], data[ids_nbytes:], layout
            )
            accepted = self._plane.put_rows(rows)
        self._received.inc(ids_nbytes + values_nbytes)
        self._took("put-rows", started)
        yield parameters_pb2.PutRowsReply(accepted=accepted).SerializeToString()

    def scan_rows(self, frames: Frames, call: Call) -> Pieces:
        started = time.perf_counter()
        header = first_frame(parameters_pb2.ScanRowsHeader(), frames)
        layout = self._check(header)
        check_table(header.table, layout)
        most = MOST_ROW_BYTES // (8 + layout.tables[header.table].row_nbytes)
        scanned = self._plane.scan_rows(
            header.frozen, header.table, header.cursor, min(max(header.most, 1), most), header.mark
        )
        self._took("scan-rows", started)
        reply = parameters_pb2.ScanRowsReply(
            count=scanned.ids.size, cursor=scanned.next or 0, more=scanned.next is not None
        )
        yield reply.SerializeToString()
        for part in (scanned.ids, scanned.rows):
            if part.size:
                yield from self._send(part.data)

    def _check(self, header: Header) -> Layout:
        check_incarnation(self._incarnation, header.incarnation)
        layout = self._plane.layout
        if header.layout_fingerprint != self._plane.fingerprint:
            raise EdlError(
                error_pb2.SHAPE_MISMATCH,
                "these parameters have another layout than the job's",
                where="parameters",
                remedy="All workers must load the same model file and build it the same way.",
            )
        return layout

    def _answer(
        self,
        reply: parameters_pb2.PullReply | parameters_pb2.PushReply,
        pulled: Pulled,
        layout: Layout,
        wanted: Precision,
    ) -> Pieces:
        """The reply, then values and rows: as wanted, or whole if one has no place in 16 bits."""
        payloads = [
            (pulled.values, self._wire_layout(layout).parameters),
            (pulled.rows, rows_span(pulled.rows.nbytes)),
        ]
        sent = [(values, spans) for values, spans in payloads if values.nbytes]
        fit = all(all_fit(values, spans, wanted) for values, spans in sent)
        precision = wanted if fit else Precision.FLOAT32
        reply.nbytes, reply.rows_nbytes = (nbytes_of(*one, precision) for one in payloads)
        reply.precision = codec.precision_to(precision)
        yield reply.SerializeToString()
        for values, spans in sent:
            for piece in send(values.cast("B"), spans, precision, self._buffers):
                self._sent.inc(len(piece))
                yield piece

    def _send(self, values: memoryview) -> Pieces:
        if values.nbytes:
            yield values.cast("B")
        self._sent.inc(values.nbytes)

    def _took(self, method: str, started: float) -> None:
        self._durations[method].observe(time.perf_counter() - started)

    def _count(
        self, header: parameters_pb2.PushHeader, outcome: PushOutcome, rows_nbytes: int
    ) -> None:
        self._received.inc(header.gradient_nbytes + header.state_nbytes + rows_nbytes)
        if outcome.kind is PushKind.APPLIED:
            self._metrics.staleness.observe(outcome.staleness)
            minibatches = header.minibatches or 1
            for _ in range(minibatches):
                self._computing.observe(header.compute_s / minibatches)
        else:
            self._metrics.rejected.labels(str(outcome.kind)).inc()


_GOING_ON = (PushKind.APPLIED, PushKind.ALREADY_APPLIED, PushKind.STALE)
"""After these the worker goes on with the task, and needs parameters for it."""


def first_frame(header: H, frames: Frames) -> H:
    frame = next(frames, None)
    if frame is None:
        raise FrameError("the stream ended before its header")
    header.ParseFromString(frame)
    return header


def _filled(frames: Frames, target: memoryview) -> memoryview:
    fill(frames, target)
    return target
