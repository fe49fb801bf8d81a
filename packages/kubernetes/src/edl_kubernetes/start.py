"""Waits until a job's master answers, or says why none will."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from edl.plugins.backends import Say, silent
from edl.plugins.errors import error_of
from edl_kubernetes.chosen_cluster import ChosenCluster
from edl_kubernetes.cluster import objects
from edl_kubernetes.cluster_job import ClusterJob
from edl_kubernetes.core.templates import JsonObject
from edl_kubernetes.job_objects import JobObjects
from edl_kubernetes.master_pods import (
    MasterProblem,
    find_problem,
    newest_pod,
    ready_pod,
)
from edl_kubernetes.refusals import quota_remedy
from edl_kubernetes.start_progress import StartProgress
from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.monitoring.log_lines import readable

_POLL_S = 0.3
_MAX_POLL_S = 2.0
_POLL_PART = 0.05
"""The pause between polls as a part of the time so far: a start that takes minutes is polled less
often."""

_STUCK_S = 60.0
_STUCK_PART = 0.1
"""How long a node may retry to get the image, or the objects that a pod refers to: the larger of
these seconds and this part of the start timeout."""

_NO_POD_S = 5.0
"""The time without a pod after which Kubernetes' events are checked for the reason."""

_DENIED_S = 20.0
"""How long an API server that starts may deny all calls: it reads users and roles first."""

_LOG_LINES = 20


@dataclass(frozen=True, slots=True)
class JobStart:
    """The start of one job."""

    cluster: ChosenCluster
    objects: JobObjects
    name: str
    timeout_s: float
    say: Say = silent
    """Called with a sentence about what the start waits for, if it takes long."""
    former: frozenset[str] = frozenset()
    """The uids of the master's pods from before the start."""

    def wait(self) -> None:
        """Return when a master is ready.

        Raises:
            EdlError: what the master has reported; or MASTER_LOST, TIMED_OUT or LIMIT_EXCEEDED
                with the words of Kubernetes.
        """
        began = time.monotonic()
        stuck_since: float | None = None
        progress = StartProgress(self.objects, self.name, self.say)
        while True:
            job, pods = self._read(began, progress)
            if job.status().state.is_over:
                self._report(job)
                return
            if job.is_suspended and objects.ANNOTATION_SUBMITTING not in job.annotations:
                return  # it waits in a queue
            if ready_pod(pods) is not None:
                return
            now = time.monotonic()
            problem = find_problem(pods)
            stuck_since = (stuck_since or now) if problem and not problem.lacks_room else None
            stuck = stuck_since is not None and now - stuck_since > self._stuck_s
            if stuck and problem and problem.is_unprepared:
                problem = self._add_events(problem)
                if not problem.is_final:
                    stuck_since, stuck = now, False  # a volume may take minutes
            if problem and (problem.is_final or stuck):
                self._check_record()
                raise self._start_error(
                    problem if problem.is_final else problem.with_timeout_remedy()
                )
            if not pods and now - began > _NO_POD_S:
                self._check_events()
            if self._is_late(began):
                raise self._timeout_error(problem, progress, pods)
            progress.update(pods, problem, now)
            time.sleep(min(max(_POLL_S, _POLL_PART * (now - began)), _MAX_POLL_S))

    def _read(
        self, began: float, progress: StartProgress
    ) -> tuple[ClusterJob, Sequence[JsonObject]]:
        """Return the job and its master's pods; outages of the API server are waited for."""
        away_at = -math.inf
        while True:
            try:
                job, pods = (
                    self.objects.read(self.name),
                    self.objects.pods(self.name, objects.MASTER),
                )
                return job, [pod for pod in pods if pod["metadata"]["uid"] not in self.former]
            except EdlError as error:
                if error.code == ErrorCode.CLUSTER_UNAVAILABLE:
                    away_at = time.monotonic()
                elif error.code != ErrorCode.FORBIDDEN or time.monotonic() - away_at > _DENIED_S:
                    raise
                if self._is_late(began):
                    raise
                progress.note_outage(time.monotonic())
            time.sleep(_POLL_S)

    @property
    def _stuck_s(self) -> float:
        return max(_STUCK_S, _STUCK_PART * self.timeout_s)

    def _is_late(self, began: float) -> bool:
        return time.monotonic() - began > self.timeout_s

    def _check_record(self) -> None:
        """Raise the error that the master has recorded, which it does before its pod ends."""
        self._report(self.objects.read(self.name))

    def _report(self, job: ClusterJob) -> None:
        """Raise the error with which the job has failed, if it has."""
        failure = job.status().failure
        if failure is not None:
            raise error_of(failure)
        if job.status().state.is_over and not job.record:
            raise self._start_error(
                MasterProblem(
                    "it ended without a message",
                    "The end of its log is below.",
                    is_final=True,
                    has_run=True,
                )
            )

    def _check_events(self) -> None:
        """Raise an EdlError if, by the latest event of the Job, its pod was refused."""
        for event in self.objects.events(self.name, "Job")[-1:]:
            if "forbidden" not in event and "quota" not in event:
                continue
            quota = "quota" in event
            raise EdlError(
                ErrorCode.LIMIT_EXCEEDED if quota else ErrorCode.FORBIDDEN,
                f"the cluster refuses the master of job {self.name}: {event}",
                where=self.objects.location(self.name),
                remedy=quota_remedy(event, self.objects.locate(self.name)[0])
                if quota
                else "Correct the option or the pod template that the message names.",
            )

    def _start_error(self, problem: MasterProblem) -> EdlError:
        end_of_log = self._end_of_log(problem) if problem.has_run else ""
        return EdlError(
            ErrorCode.MASTER_LOST,
            f"the master of job {self.name} does not start: {problem.what}",
            where=self.objects.location(self.name),
            remedy=problem.remedy,
            detail=readable(end_of_log),
        )

    def _end_of_log(self, problem: MasterProblem) -> str:
        """Return the end of the log of the failed container, or a note that it cannot be read."""
        query = {"container": problem.container, "tailLines": str(_LOG_LINES)}
        try:
            pod = problem.pod or self._newest_pod()
            return self.objects.log(self.name, pod, query) if pod else ""
        except EdlError as error:
            return f"(no log: {error.what})"

    def _newest_pod(self) -> str:
        """Return the name of the newest pod of the master; empty if there is none."""
        pod = newest_pod(self.objects.pods(self.name, objects.MASTER))
        return str(pod["metadata"]["name"]) if pod else ""

    def _add_events(self, problem: MasterProblem) -> MasterProblem:
        events = self.objects.events(self.name, "Pod", problem.pod, warnings=True)
        return problem.with_events(events)

    def _timeout_error(
        self, problem: MasterProblem | None, progress: StartProgress, pods: Sequence[JsonObject]
    ) -> EdlError:
        if problem and problem.is_unprepared:
            problem = self._add_events(problem).with_timeout_remedy()
        return EdlError(
            ErrorCode.TIMED_OUT,
            f"the master of job {self.name} was not ready within {self.timeout_s:.0f} s: "
            + (progress.explain(problem, pods) if problem else progress.describe(pods)),
            where=self.objects.location(self.name),
            remedy=problem.remedy if problem else "Allow more time with --start-timeout.",
        )
