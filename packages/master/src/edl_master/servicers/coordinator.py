"""The calls of workers for decisions about parameters that parameter servers have."""

from __future__ import annotations

import time

from edl_master import codec
from edl_master.core.identifiers import HeldLease, WorkerId
from edl_master.core.parameters.permits import PermitGranted
from edl_master.metrics.instruments import Metrics
from edl_master.parameters import push_codec
from edl_master.parameters.coordinator import Coordinator
from edl_master.parameters.errors import translate_payload_errors
from edl_master.parameters.plane import GOING_ON
from edl_master.servicers.checks import (
    Caller,
    bounded_wait,
    check_fingerprint,
    check_incarnation,
    check_permit,
)
from edl_master.servicers.payloads import header_of
from edl_master.servicers.push_report import PushReporter
from edl_proto.transport.frames import Frames, Pieces
from edl_proto.transport.listener import Call, Method
from edl_proto.v1 import parameters_pb2


class CoordinatorServicer:
    """Serves ``COORDINATOR``; calls of workers have no payloads.

    Args:
        coordinator: decides.
        reporter: receives the outcomes of pushes.
        metrics: durations.
        incarnation: of this master.
        follow: answers parameter servers, which receive the command log.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        reporter: PushReporter,
        metrics: Metrics,
        incarnation: str,
        follow: Method,
    ) -> None:
        self._coordinator = coordinator
        self._reporter = reporter
        self._durations = metrics.parameter_request_duration
        self._incarnation = incarnation
        self.follow = follow

    def commit_initial_values(self, frames: Frames, call: Call) -> Pieces:
        request = header_of(parameters_pb2.CommitInitialValuesRequest(), frames)
        self._check(request)
        worker = WorkerId(request.worker_id)
        accepted = self._coordinator.commit_initial_values(worker)
        yield parameters_pb2.CommitInitialValuesReply(
            accepted=accepted, log_index=self._coordinator.log_index
        ).SerializeToString()

    def commit(self, frames: Frames, call: Call) -> Pieces:
        started = time.perf_counter()
        request = header_of(parameters_pb2.CommitRequest(), frames)
        self._check(request)
        worker = WorkerId(request.worker_id)
        claim = push_codec.claim_from(request.claim, worker)
        with translate_payload_errors():
            squares = push_codec.squares_from(request.squares)
            result = self._coordinator.commit(claim, squares=squares)
        # Before the worker is answered or waits, so that the job is never behind it.
        self._reporter.report(worker, claim, request.step, result)
        permit = None
        if request.HasField("permit_wait_s") and result.outcome in GOING_ON:
            permit = self._coordinator.wait_for_permit(
                HeldLease(claim.task, claim.token),
                bounded_wait(request.permit_wait_s),
                call.is_active,
                worker=worker,
            )
        self._durations.labels("commit").observe(time.perf_counter() - started)
        yield parameters_pb2.CommitReply(
            outcome=push_codec.outcome_to(result.outcome),
            version=permit.version if isinstance(permit, PermitGranted) else result.version,
            permit_granted=isinstance(permit, PermitGranted),
            log_index=self._coordinator.log_index,
        ).SerializeToString()

    def permit(self, frames: Frames, call: Call) -> Pieces:
        started = time.perf_counter()
        request = header_of(parameters_pb2.PermitRequest(), frames)
        self._check(request)
        wait_s, permit = bounded_wait(request.wait_s), None
        if request.HasField("permit_for"):
            lease = codec.lease_from(request.permit_for)
            permit = self._coordinator.wait_for_permit(
                lease, wait_s, call.is_active, worker=WorkerId(request.worker_id)
            )
            check_permit(permit)
            wait_s = 0.0
        version = self._coordinator.wait_for_values(wait_s, call.is_active)
        self._durations.labels("permit").observe(time.perf_counter() - started)
        yield parameters_pb2.PermitReply(
            initialized=version is not None,
            permit_granted=isinstance(permit, PermitGranted),
            version=version or 0,
            log_index=self._coordinator.log_index,
        ).SerializeToString()

    def _check(self, request: Caller) -> None:
        check_incarnation(self._incarnation, request.incarnation)
        check_fingerprint(self._coordinator.fingerprint, request.layout_fingerprint)
