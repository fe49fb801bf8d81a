"""Parameters, as called by workers: headers decoded, payloads never wrapped."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TypeVar

import grpc

from edl_master import codec
from edl_master.adapters.buffers import Buffers
from edl_master.conductor import Conductor
from edl_master.core.names import Version
from edl_master.core.parameters.exchange import (
    PushKind,
    PushOutcome,
    SlotGranted,
    SlotRefused,
)
from edl_master.core.parameters.layout import Layout
from edl_master.guarded_plane import GuardedPlane
from edl_master.metrics import Metrics
from edl_master.servicers.checks import bounded_wait, check_incarnation
from edl_proto.errors import EdlError
from edl_proto.parameters import FrameError, fill, split
from edl_proto.v1 import error_pb2, parameters_pb2

Frames = Iterator[bytes]


Header = parameters_pb2.InitializeHeader | parameters_pb2.PullHeader | parameters_pb2.PushHeader
H = TypeVar(
    "H", parameters_pb2.InitializeHeader, parameters_pb2.PullHeader, parameters_pb2.PushHeader
)


class ParametersServicer:
    """Serves one job's parameters as raw frames.

    Sizes are compared with the layout before any payload is read: a header cannot make the
    master take more memory than the model has.

    Args:
        conductor: the job, which is told what became of gradients.
        plane: the parameters.
        buffers: where payloads are received.
        metrics: durations and bytes.
        incarnation: of this master.
    """

    def __init__(
        self,
        conductor: Conductor,
        plane: GuardedPlane,
        buffers: Buffers,
        metrics: Metrics,
        incarnation: str,
    ) -> None:
        self._conductor = conductor
        self._plane = plane
        self._buffers = buffers
        self._metrics = metrics
        self._incarnation = incarnation
        durations = metrics.parameter_request_duration
        self._durations = {name: durations.labels(name) for name in ("initialize", "pull", "push")}
        self._received = metrics.parameter_bytes.labels("received")
        self._sent = metrics.parameter_bytes.labels("sent")
        self._computing = metrics.step_duration.labels("compute")

    def initialize(self, frames: Frames, context: grpc.ServicerContext) -> Frames:
        started = time.perf_counter()
        header = _first(parameters_pb2.InitializeHeader(), frames)
        layout = self._check(header)
        _check_size("the initial values", header.nbytes, layout.parameter_nbytes)
        with self._buffers.lent(header.nbytes) as values:
            fill(frames, values)
            accepted, version = self._plane.initialize(values)
        self._received.inc(header.nbytes)
        self._took("initialize", started)
        reply = parameters_pb2.InitializeReply(accepted=accepted, version=version)
        yield reply.SerializeToString()

    def pull(self, frames: Frames, context: grpc.ServicerContext) -> Frames:
        started = time.perf_counter()
        header = _first(parameters_pb2.PullHeader(), frames)
        self._check(header)
        with self._plane.pulled(
            have=Version(header.have_version) if header.HasField("have_version") else None,
            frozen=header.frozen,
            slot_for=codec.lease_from(header.slot_for) if header.HasField("slot_for") else None,
            wait_s=bounded_wait(header.wait_s),
            is_wanted=context.is_active,
        ) as pulled:
            self._took("pull", started)
            if isinstance(pulled.slot, SlotRefused):
                raise EdlError(
                    error_pb2.STALE_LEASE,
                    "the lease that a step slot was asked for is not current",
                    where="parameters",
                    remedy="Drop the task and ask for another one.",
                )
            reply = parameters_pb2.PullReply(
                version=pulled.version,
                nbytes=pulled.values.nbytes,
                slot_granted=isinstance(pulled.slot, SlotGranted),
                initialized=pulled.initialized,
            )
            yield reply.SerializeToString()
            yield from self._send(pulled.values)

    def push(self, frames: Frames, context: grpc.ServicerContext) -> Frames:
        started = time.perf_counter()
        header = _first(parameters_pb2.PushHeader(), frames)
        layout = self._check(header)
        _check_size("the gradient", header.gradient_nbytes, layout.gradient_nbytes)
        if header.state_nbytes:
            _check_size("the state delta", header.state_nbytes, layout.state_nbytes)
        with (
            self._buffers.lent(header.gradient_nbytes) as gradient,
            self._buffers.lent(header.state_nbytes) as state,
        ):
            fill(frames, gradient)
            fill(frames, state)
            outcome = self._plane.push(codec.push_from(header, gradient, state))
        self._count(header, outcome)
        # Before anything is answered or waited for, so that the job knows what the worker knows.
        if (fact := codec.pushed_from(header, outcome)) is not None:
            self._conductor.tell(fact)
        reply = parameters_pb2.PushReply(
            outcome=codec.outcome_to(outcome.kind),
            version=outcome.version,
            staleness=max(0, outcome.staleness),
        )
        if not header.pull or outcome.kind not in _GOING_ON:
            self._took("push", started)
            yield reply.SerializeToString()
            return
        with self._plane.pulled(
            have=Version(header.base_version),
            slot_for=codec.lease_from(header.lease),
            wait_s=bounded_wait(header.wait_s),
            is_wanted=context.is_active,
        ) as pulled:
            self._took("push", started)
            reply.version = pulled.version
            reply.nbytes = pulled.values.nbytes
            reply.slot_granted = isinstance(pulled.slot, SlotGranted)
            yield reply.SerializeToString()
            yield from self._send(pulled.values)

    def _check(self, header: Header) -> Layout:
        check_incarnation(self._incarnation, header.incarnation)
        layout = self._plane.layout
        if header.layout_fingerprint != layout.fingerprint:
            raise EdlError(
                error_pb2.SHAPE_MISMATCH,
                "these parameters have another layout than the job's",
                where="parameters",
                remedy="All workers must load the same model file and build it the same way.",
            )
        return layout

    def _send(self, values: memoryview) -> Frames:
        yield from split(values)
        self._sent.inc(values.nbytes)

    def _took(self, method: str, started: float) -> None:
        self._durations[method].observe(time.perf_counter() - started)

    def _count(self, header: parameters_pb2.PushHeader, outcome: PushOutcome) -> None:
        self._received.inc(header.gradient_nbytes + header.state_nbytes)
        if outcome.kind is PushKind.APPLIED:
            self._metrics.staleness.observe(outcome.staleness)
            self._computing.observe(header.compute_s)
        else:
            self._metrics.rejected.labels(str(outcome.kind)).inc()


_GOING_ON = (PushKind.APPLIED, PushKind.ALREADY_APPLIED, PushKind.STALE)
"""After these the worker goes on with the task, and needs parameters for it."""


def _first(header: H, frames: Frames) -> H:
    frame = next(frames, None)
    if frame is None:
        raise FrameError("the stream ended before its header")
    header.ParseFromString(frame)
    return header


def _check_size(what: str, nbytes: int, expected: int) -> None:
    if nbytes != expected:
        raise EdlError(
            error_pb2.SHAPE_MISMATCH,
            f"{what} must have {expected} bytes, not {nbytes}",
            where="parameters",
            remedy="All workers must load the same model file and build it the same way.",
        )
