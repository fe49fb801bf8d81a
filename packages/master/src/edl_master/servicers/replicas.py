"""The calls of workers that train in step."""

from __future__ import annotations

import grpc

from edl_master import codec
from edl_master.control.job_controller import JobController
from edl_master.core.generations import VersionOrigin
from edl_master.core.identifiers import InstanceId, Version, WorkerId
from edl_master.core.replica_events import (
    GenerationBegun,
    GenerationRequested,
    GroupLeft,
    ReplicaClaim,
    ReplicaStep,
    StepsCounted,
    StepsReported,
    StepsWanted,
    ValuesRequested,
)
from edl_master.core.succession import Holding
from edl_master.metrics.instruments import Metrics
from edl_master.parameters.coordinator import Coordinator
from edl_master.servicers.checks import bounded_wait, check_fingerprint, check_incarnation
from edl_proto.printable import clip, one_line
from edl_proto.v1 import replicas_pb2, replicas_pb2_grpc

_MAX_CAUSE = 300
"""The characters that a worker may say about a peer that it cannot reach."""


class ReplicasServicer(replicas_pb2_grpc.ReplicasServicer):
    """Decodes a request, passes it to the job, and encodes the answer.

    Args:
        controller: the job.
        coordinator: knows the layout of the model.
        metrics: durations of steps.
        incarnation: of this master.
    """

    def __init__(
        self,
        controller: JobController,
        coordinator: Coordinator,
        metrics: Metrics,
        incarnation: str,
    ) -> None:
        self._controller = controller
        self._coordinator = coordinator
        self._compute_duration = metrics.step_duration.labels("compute")
        self._incarnation = incarnation
        self._addresses: dict[int, str] = {}  # of workers, as they have named them last

    def Join(
        self, request: replicas_pb2.JoinRequest, context: grpc.ServicerContext
    ) -> replicas_pb2.JoinReply:
        check_incarnation(self._incarnation, request.incarnation)
        check_fingerprint(self._coordinator.fingerprint, request.layout_fingerprint)
        asked = GenerationRequested(
            WorkerId(request.worker_id),
            InstanceId(request.instance),
            request.after,
            _holding_from(request),
            tuple(_step_from(step) for step in request.steps),
        )
        self._addresses[request.worker_id] = request.address  # all members have called
        wait_s = bounded_wait(request.wait_s)
        match self._controller.request(asked, wait_s, context.is_active):
            case GenerationBegun() as begun:
                return replicas_pb2.JoinReply(generation=self._generation_to(begun))
            case StepsWanted(version):
                return replicas_pb2.JoinReply(steps_after=version)
            case ValuesRequested():
                return replicas_pb2.JoinReply(save=True)
            case GroupLeft():
                return replicas_pb2.JoinReply(left=True)
            case _:
                return replicas_pb2.JoinReply()

    def Report(
        self, request: replicas_pb2.ReportRequest, context: grpc.ServicerContext
    ) -> replicas_pb2.ReportReply:
        check_incarnation(self._incarnation, request.incarnation)
        if request.compute_s:
            for _ in request.steps:
                self._compute_duration.observe(request.compute_s)
        answer = self._controller.handle(
            StepsReported(
                WorkerId(request.worker_id),
                request.generation,
                Version(request.version) if request.HasField("version") else None,
                tuple(_step_from(step) for step in request.steps),
                request.stopped,
                WorkerId(request.unreachable) if request.HasField("unreachable") else None,
                clip(one_line(request.cause), _MAX_CAUSE),
                request.complete,
            )
        )
        if not isinstance(answer, StepsCounted):  # the job is over
            return replicas_pb2.ReportReply(ended=True)
        return replicas_pb2.ReportReply(
            counted=answer.counted,
            ended=answer.ended,
            lost=answer.lost,
            all_wanted=answer.all_wanted,
            saved=answer.saved,
        )

    def _generation_to(self, begun: GenerationBegun) -> replicas_pb2.Generation:
        generation = begun.generation
        return replicas_pb2.Generation(
            number=generation.number,
            members=generation.members,
            version=generation.version,
            sources=generation.sources,
            leases=[
                replicas_pb2.LeasePosition(lease=codec.lease_ref_to(lease), minibatches=minibatches)
                for lease, minibatches in begun.leases
            ],
            next_token=begun.next_token,
            save=generation.saves,
            learning_rate=begun.learning_rate,
            finish=generation.finishes,
            addresses=[self._addresses.get(worker, "") for worker in generation.members],
            origin=replicas_pb2.VersionOrigin(
                incarnation=begun.origin.incarnation, number=begun.origin.number
            ),
        )


def _holding_from(request: replicas_pb2.JoinRequest) -> Holding | None:
    spans = request.holding.origins
    origins = (VersionOrigin(span.origin.incarnation, span.origin.number) for span in spans)
    versions = (Version(span.version) for span in spans)
    version = Version(request.holding.version)
    return Holding(version, tuple(zip(versions, origins, strict=True))) if spans else None


def _step_from(step: replicas_pb2.ReplicaStep) -> ReplicaStep:
    return tuple(
        ReplicaClaim(
            WorkerId(member.worker_id),
            codec.lease_from(member.claim.lease),
            member.claim.minibatch,
            member.claim.minibatches,
            member.claim.records,
            member.claim.loss,
        )
        for member in step.claims
    )
