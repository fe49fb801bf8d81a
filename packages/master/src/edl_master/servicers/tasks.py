"""The calls of workers about tasks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import grpc

from edl_master import codec
from edl_master.adapters.job_output import JobOutput
from edl_master.adapters.profiles import ProfileFiles
from edl_master.control.job_controller import Answer, GrantedLease, JobController
from edl_master.core import events
from edl_master.core.effects import (
    HeartbeatAnswer,
    LeaseGranted,
    LeaveJob,
    LogEvent,
    Refused,
    WaitForWork,
)
from edl_master.core.identifiers import HeldLease, InstanceId, TaskType, WorkerId
from edl_master.core.parameters.modes import Replicated
from edl_master.core.timeline import SpanOutcome
from edl_master.metrics.processes import WorkerCounters
from edl_master.parameters.coordinator import Coordinator
from edl_master.parameters.job_model import JobModel
from edl_master.reporting.timeline_recorder import TimelineRecorder
from edl_master.reporting.worker_environments import WorkerEnvironments
from edl_master.server_group.group import ParameterServerGroup
from edl_master.servicers.checks import bounded_wait, check_incarnation
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2, task_pb2, task_pb2_grpc

log = logging.getLogger(__name__)

_WRITING = (TaskType.PREDICTION, TaskType.EXPORT)

_SERVERS_S = 45.0
"""How long one call waits for parameter servers that start; then the worker calls again."""


@dataclass(frozen=True, slots=True)
class TaskFiles:
    """The places of tasks' records and of their results.

    Attributes:
        records: what a lease names of its task's records.
        results: what tasks write; None for jobs that write nothing.
        columns: those that the model file gets of rows of CSV, in order.
        description: of the data, for a trained model.
        sample: the first records of a stream.
    """

    records: Callable[[LeaseGranted], Sequence[task_pb2.RecordRange]]
    results: JobOutput | None
    columns: tuple[str, ...] = ()
    description: bytes = b""
    sample: tuple[bytes, ...] = ()

    def completing(self, lease: HeldLease, records: int) -> AbstractContextManager[None]:
        """Open the context in which the job is asked whether a task is complete."""
        if lease.task.type in _WRITING and self.results is not None:
            return self.results.completing(lease, records)
        return nullcontext()

    def part_of(self, lease: LeaseGranted) -> str:
        """Return where the holder of a lease writes; empty if its task writes nothing."""
        if lease.task.type in _WRITING and self.results is not None:
            return self.results.part_of(HeldLease(lease.task, lease.token))
        return ""


@dataclass(frozen=True, slots=True)
class JobParameters:
    """The facts about a training job's parameters that workers learn outside of parameter calls.

    Attributes:
        coordinator: counts the minibatches of open tasks.
        model: is described by the workers.
        group: the parameter servers; None: there are none.
    """

    coordinator: Coordinator
    model: JobModel
    group: ParameterServerGroup | None = None


@dataclass(frozen=True, slots=True)
class WorkerRecords:
    """The records that are kept of workers' reports.

    Attributes:
        counters: what they have counted.
        timeline: what they did when.
        environments: what they run with.
        profiles: their profiles; None: the job is not profiled.
        record: takes events for the job's log.
    """

    counters: WorkerCounters
    timeline: TimelineRecorder
    environments: WorkerEnvironments
    profiles: ProfileFiles | None = None
    record: Callable[[LogEvent], None] = lambda event: None


class TasksServicer(task_pb2_grpc.TasksServicer):
    """Decodes a request, passes it to the job, and encodes the answer.

    Args:
        controller: the job.
        parameters: None for jobs on a trained model.
        files: where records and results are.
        records: what is kept of what workers say.
        spec: what the user submitted.
        incarnation: of this master.
        heartbeat_every_s: how often workers are to speak.
        metrics_token: what a scraper must say to get a worker's metrics.
    """

    def __init__(
        self,
        controller: JobController,
        parameters: JobParameters | None,
        files: TaskFiles,
        records: WorkerRecords,
        spec: job_pb2.JobSpec,
        incarnation: str,
        heartbeat_every_s: float,
        metrics_token: str,
    ) -> None:
        self._controller = controller
        self._parameters = parameters
        self._files = files
        self._counters = records.counters
        self._timeline = records.timeline
        self._records = records
        self._spec = spec
        self._incarnation = incarnation
        self._heartbeat_every_s = heartbeat_every_s
        self._metrics_token = metrics_token

    def Register(
        self, request: task_pb2.RegisterRequest, context: grpc.ServicerContext
    ) -> task_pb2.RegisterReply:
        answer = self._controller.handle(codec.registered_from(request))
        if not isinstance(answer, LeaveJob):
            self._records.environments.add(request.worker_id, request.environment)
        return task_pb2.RegisterReply(
            job=self._spec,
            incarnation=self._incarnation,
            heartbeat_every_s=self._heartbeat_every_s,
            metrics_token=self._metrics_token,
            columns=self._files.columns,
            sample=self._files.sample,
        )

    def Ready(
        self, request: task_pb2.ReadyRequest, context: grpc.ServicerContext
    ) -> task_pb2.ReadyReply:
        check_incarnation(self._incarnation, request.incarnation)
        ready, reply = codec.ready_from(request), task_pb2.ReadyReply()
        # First of all: another vocabulary often makes a variable of another size, too.
        if other := self._controller.agree_on_layers(ready.layer_states):
            self._controller.handle(ready)
            raise EdlError.from_proto(codec.error_to(other))
        if (parameters := self._parameters) is not None:
            model = request.model
            fingerprint, values_missing = parameters.model.describe(
                codec.variables_from(model.variables),
                model.optimizer_json,
                model.reduction,
                lambda: codec.tables_from(model.tables),
            )
            reply.layout_fingerprint = fingerprint
            reply.send_initial_values = values_missing
            ready = replace(ready, replicated=isinstance(parameters.coordinator.mode, Replicated))
            if parameters.group is not None:
                addresses = parameters.group.wait_for_all(_SERVERS_S)
                layouts = parameters.coordinator.shard_layouts
                reply.servers.extend(
                    task_pb2.ParameterServer(address=address, start=part.start, stop=part.stop)
                    for address, part in zip(addresses, layouts, strict=True)
                )
        self._controller.handle(ready)
        return reply

    def Lease(
        self, request: task_pb2.LeaseRequest, context: grpc.ServicerContext
    ) -> task_pb2.LeaseReply:
        check_incarnation(self._incarnation, request.incarnation)
        asked = events.LeaseRequested(WorkerId(request.worker_id), InstanceId(request.instance))
        wait_s = bounded_wait(request.wait_s)
        match self._controller.request(asked, wait_s, context.is_active):
            case GrantedLease(lease, skip_minibatches):
                self._timeline.record_lease(lease.worker, asked.instance, lease.task, lease.token)
                return task_pb2.LeaseReply(
                    lease=self._lease(lease, skip_minibatches),
                    log_index=self._parameters.coordinator.log_index if self._parameters else 0,
                )
            case WaitForWork(retry_in_s, reason):
                return task_pb2.LeaseReply(wait=task_pb2.Wait(retry_in_s=retry_in_s, reason=reason))
            case LeaveJob(reason):
                return task_pb2.LeaseReply(leave=task_pb2.Leave(reason=reason))
            case answer:
                raise AssertionError(f"a request for a task was answered by {answer}")

    def Complete(
        self, request: task_pb2.CompleteRequest, context: grpc.ServicerContext
    ) -> task_pb2.CompleteReply:
        check_incarnation(self._incarnation, request.incarnation)
        held = codec.lease_from(request.lease)
        applied = None
        if held.task.type is TaskType.TRAINING and self._parameters is not None:
            applied = self._parameters.coordinator.count_applied(held.task)
        worker = WorkerId(request.worker_id)
        # What a holder has written is fetched before the job decides, and for no other worker.
        is_its = self._controller.may_complete(worker, held)
        with self._files.completing(held, request.records) if is_its else nullcontext():
            _check(self._controller.handle(codec.completion_from(request, applied)))
        self._timeline.record_end(worker, held.task, held.token, SpanOutcome.DONE)
        return task_pb2.CompleteReply()

    def Fail(
        self, request: task_pb2.FailRequest, context: grpc.ServicerContext
    ) -> task_pb2.FailReply:
        check_incarnation(self._incarnation, request.incarnation)
        log.warning("worker %d failed: %s", request.worker_id, request.error.what[:1000])
        if (event := codec.failed_from(request)) is not None:
            if isinstance(event, events.TaskFailed):
                # Before the task is leased again, which would end this work as lost.
                held = event.lease
                self._timeline.record_end(event.worker, held.task, held.token, SpanOutcome.FAILED)
            _check(self._controller.handle(event))
        return task_pb2.FailReply()

    def Return(
        self, request: task_pb2.ReturnRequest, context: grpc.ServicerContext
    ) -> task_pb2.ReturnReply:
        check_incarnation(self._incarnation, request.incarnation)
        returned = codec.returned_from(request)
        for lease in returned.leases:  # before they are leased again
            self._timeline.record_end(
                returned.worker, lease.task, lease.token, SpanOutcome.RETURNED
            )
        self._controller.handle(returned)
        return task_pb2.ReturnReply()

    def Heartbeat(
        self, request: task_pb2.HeartbeatRequest, context: grpc.ServicerContext
    ) -> task_pb2.HeartbeatReply:
        check_incarnation(self._incarnation, request.incarnation)
        heard = codec.heartbeat_from(request)
        answer = self._controller.handle(heard)
        if not isinstance(answer, HeartbeatAnswer):
            raise AssertionError(f"a heartbeat was answered by {answer}")
        self._counters.add(
            heard.worker, heard.instance, request.counters, is_current=not answer.leave
        )
        if not answer.leave:  # one that has to leave may have been replaced already
            self._timeline.record_heartbeat(
                heard.worker, heard.instance, heard.phase, request.counters
            )
        return task_pb2.HeartbeatReply(
            lost=map(codec.lease_ref_to, answer.lost),
            leave=bool(answer.leave),
            leave_reason=answer.leave,
            send_stacks=answer.send_stacks,
        )

    def WriteProfile(
        self, request: task_pb2.WriteProfileRequest, context: grpc.ServicerContext
    ) -> task_pb2.WriteProfileReply:
        check_incarnation(self._incarnation, request.incarnation)
        worker, profiles = request.worker_id, self._records.profiles
        if profiles is None:
            raise EdlError(
                ErrorCode.FORBIDDEN,
                "this job is not profiled",
                where="--profile",
                remedy="Submit the job with --profile FIRST:LAST.",
            )
        written = profiles.add(worker, request.offset, request.content, last=request.last)
        if written is not None:
            self._records.record(
                LogEvent(
                    "ProfileWritten",
                    f"The profile of worker {worker} is in {written}; tensorboard --logdir "
                    f"{self._spec.tensorboard_dir} shows it.",
                    facts={"worker": str(worker), "path": str(written)},
                )
            )
        return task_pb2.WriteProfileReply()

    def _lease(self, lease: LeaseGranted, skip_minibatches: int) -> task_pb2.Lease:
        part, export = self._files.part_of(lease), None
        if lease.task.type is TaskType.EXPORT:
            view, data = self._controller.view(), self._files.description
            export = codec.export_to(lease, view, data)
        return codec.lease_to(lease, skip_minibatches, self._files.records(lease), part, export)


def _check(answer: Answer | None) -> None:
    if isinstance(answer, Refused):
        raise EdlError(
            ErrorCode.STALE_LEASE,
            answer.reason,
            where="the job's master",
            remedy="Drop the task and ask for another one.",
        )
