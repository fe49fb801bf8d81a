"""The calls of clients about a job as a whole."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

import grpc

from edl_master.adapters.event_log import EventLog
from edl_master.config.gpus import check_gpus
from edl_master.control.job_controller import JobController
from edl_master.core import events
from edl_master.core.effects import Refused
from edl_master.core.gpus import NO_GPUS, GpuAssignment
from edl_master.core.settings import MAX_WORKERS, JobType, is_worker_range
from edl_master.reporting.timeline_recorder import TimelineRecorder
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2, job_pb2_grpc

_WATCHER_CHECK_S = 1.0
"""How long a watcher that has left may go unnoticed."""


class Recorder(Protocol):
    """Keeps commands for later masters of the job."""

    def record_stop(self, reason: str) -> None: ...

    def record_scale(self, minimum: int, maximum: int) -> None: ...

    def record_learning_rate(self, rate: float, number: int) -> None: ...


class JobServicer(job_pb2_grpc.JobServicer):
    """Decodes a request, passes it to the job, and encodes the answer.

    Args:
        controller: the job.
        event_log: its events.
        status: the job as it is now.
        acknowledge: called when a client has read the final status.
        recorded: commands that have to survive this master.
        timeline: what workers did when.
        schedules: the names of the schedules of the model's optimizers, None for each constant
            learning rate; empty before there is a model.
        gpus: of the job's workers.
    """

    def __init__(
        self,
        controller: JobController,
        event_log: EventLog,
        status: Callable[[], job_pb2.JobStatus],
        acknowledge: Callable[[], None],
        recorded: Recorder,
        timeline: TimelineRecorder,
        schedules: Callable[[], tuple[str | None, ...]],
        gpus: GpuAssignment = NO_GPUS,
    ) -> None:
        self._controller = controller
        self._event_log = event_log
        self._status = status
        self._acknowledge = acknowledge
        self._recorded = recorded
        self._timeline = timeline
        self._schedules = schedules
        self._gpus = gpus
        # Concurrent commands are recorded in the order in which they take effect.
        self._changing = threading.Lock()

    def GetStatus(
        self, request: job_pb2.GetStatusRequest, context: grpc.ServicerContext
    ) -> job_pb2.JobStatus:
        return self._status()

    def WatchEvents(
        self, request: job_pb2.WatchEventsRequest, context: grpc.ServicerContext
    ) -> Iterator[job_pb2.Event]:
        seen = request.after
        while context.is_active():
            # Asked first: what is added between the two questions is not missed.
            over = self._event_log.closed
            found = self._event_log.after(seen)
            for event in found:
                yield event
                seen = event.number
            if not found:
                if over or not request.follow:
                    return
                self._event_log.wait(seen, _WATCHER_CHECK_S)

    def ReadTimeline(
        self, request: job_pb2.ReadTimelineRequest, context: grpc.ServicerContext
    ) -> Iterator[job_pb2.TimelineChunk]:
        for lines in self._timeline.chunks():
            yield job_pb2.TimelineChunk(lines=lines)

    def Scale(
        self, request: job_pb2.ScaleRequest, context: grpc.ServicerContext
    ) -> job_pb2.ScaleReply:
        minimum, maximum = _asked_range(request.workers)
        check_gpus(self._gpus, maximum, "edl scale")
        with self._changing:
            answer = self._controller.handle(events.ScaleRequested(minimum, maximum))
            if isinstance(answer, Refused):
                raise EdlError(
                    ErrorCode.JOB_OVER,
                    f"the job's workers cannot change any more: {answer.reason}",
                    where="edl scale",
                    remedy="edl list --running lists the running jobs.",
                )
            view = self._controller.view()
            self._recorded.record_scale(view.min_workers, view.max_workers)
        return job_pb2.ScaleReply(
            workers=job_pb2.WorkersSpec(min=view.min_workers, max=view.max_workers)
        )

    def SetLearningRate(
        self, request: job_pb2.SetLearningRateRequest, context: grpc.ServicerContext
    ) -> job_pb2.SetLearningRateReply:
        rate = request.learning_rate
        if not 0 <= rate < math.inf:
            raise _rate_error(f"{rate} is not a learning rate", "It is a number, at least 0.")
        with self._changing:
            if self._controller.view().type is JobType.TRAIN:
                _check_schedules(self._schedules())
            answer = self._controller.handle(events.LearningRateRequested(rate))
            if isinstance(answer, Refused):
                raise EdlError(
                    ErrorCode.JOB_OVER,
                    f"the job's learning rate cannot change: {answer.reason}",
                    where="learning-rate",
                    remedy="edl list --running lists the running jobs.",
                )
            self._recorded.record_learning_rate(rate, self._controller.view().requested_rates)
        return job_pb2.SetLearningRateReply()

    def Stop(
        self, request: job_pb2.StopRequest, context: grpc.ServicerContext
    ) -> job_pb2.StopReply:
        reason = request.reason or "stopped without a reason"
        # Before the answer: a client that has it relies on the job's end, whatever fails meanwhile.
        self._recorded.record_stop(reason)
        self._controller.handle(events.StopRequested(reason))
        return job_pb2.StopReply()

    def Acknowledge(
        self, request: job_pb2.AcknowledgeRequest, context: grpc.ServicerContext
    ) -> job_pb2.AcknowledgeReply:
        self._acknowledge()
        return job_pb2.AcknowledgeReply()


def _check_schedules(schedules: tuple[str | None, ...]) -> None:
    """Check that a client may set the learning rate.

    Raises:
        EdlError: USAGE; there is no single, constant one that it would replace.
    """
    if not schedules:
        raise _rate_error(
            "the job has no model yet whose learning rate could change",
            "Try again when the job trains.",
        )
    if len(schedules) > 1:
        raise _rate_error(
            f"the model has {len(schedules)} optimizers, each with a learning rate of its own",
            "Change the model file, and submit another job with --init-from.",
        )
    if schedules[0] is not None:
        raise _rate_error(
            f"the learning rate follows the schedule {schedules[0]}",
            "Only the constant rate of an optimizer, such as Adam(0.001), can be set.",
        )


def _rate_error(what: str, remedy: str) -> EdlError:
    return EdlError(ErrorCode.USAGE, what, where="learning-rate", remedy=remedy)


def _asked_range(wanted: job_pb2.WorkersSpec) -> tuple[int, int]:
    """Return the minimum and maximum that a request asks for; without a maximum it is the minimum.

    Raises:
        EdlError: USAGE; no job can have them.
    """
    minimum, maximum = wanted.min, wanted.max or wanted.min
    if not is_worker_range(minimum, maximum):
        raise EdlError(
            ErrorCode.USAGE,
            f"a job cannot have {minimum} to {maximum} workers",
            where="edl scale",
            remedy=f"Ask for 1 to {MAX_WORKERS} workers, with a minimum that does not exceed "
            "the maximum.",
        )
    return minimum, maximum
