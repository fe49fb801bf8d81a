"""Reports a push to the job's events and the metrics."""

from __future__ import annotations

from edl_master.control.job_controller import JobController
from edl_master.core.identifiers import Version, WorkerId
from edl_master.core.parameters.push import PushClaim, PushOutcome, PushResult
from edl_master.core.replica_events import ValuesAccepted, ValuesSent
from edl_master.metrics.instruments import Metrics
from edl_master.parameters import push_codec
from edl_proto.v1 import parameters_pb2


class PushReporter:
    """Reports the outcomes of pushes.

    Args:
        controller: of the job.
        metrics: staleness, rejections and durations of steps.
    """

    def __init__(self, controller: JobController, metrics: Metrics) -> None:
        self._controller = controller
        self._metrics = metrics
        self._compute_duration = metrics.step_duration.labels("compute")

    def report(
        self,
        worker: WorkerId,
        claim: PushClaim,
        step: parameters_pb2.StepReport,
        result: PushResult,
    ) -> None:
        """Report one result; before the worker is answered, so that the job is never behind it."""
        if result.outcome is PushOutcome.APPLIED:
            self._metrics.staleness.observe(result.staleness)
            compute_s = push_codec.compute_s_from(step) / claim.minibatches
            for _ in range(claim.minibatches):
                self._compute_duration.observe(compute_s)
        else:
            self._metrics.rejected.labels(str(result.outcome)).inc()
        event = push_codec.event_from(worker, claim, step, result)
        if event is not None:
            self._controller.handle(event)

    def report_values(self, worker: WorkerId, version: Version) -> bool:
        """Report values that a worker of replicated training has sent; return if they are used."""
        answer = self._controller.handle(ValuesSent(worker, version))
        return isinstance(answer, ValuesAccepted) and answer.accepted
