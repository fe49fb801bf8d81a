"""The ``JobBackend`` of a Kubernetes cluster."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from edl.plugins.backends import (
    JobEntry,
    JobLogs,
    MasterUnreachable,
    Say,
    ServedPage,
    Setting,
    StatusReport,
    silent,
)
from edl.plugins.errors import Problem, error_of
from edl.plugins.job_status import (
    ERROR_LINES,
    Failure,
    JobEvent,
    JobState,
    JobStatus,
    LogChoice,
    decode_status,
    final_failure,
    to_dict,
)
from edl.plugins.options import cluster_choice
from edl.plugins.submissions import Submission, WorkerRange
from edl_kubernetes.chosen_cluster import ChosenCluster
from edl_kubernetes.cluster import objects
from edl_kubernetes.cluster_job import (
    SUSPENDED,
    ClusterJob,
    created_s,
    describe,
    is_being_deleted,
    is_being_submitted,
)
from edl_kubernetes.continuation import ClusterContinuation
from edl_kubernetes.job_creation import JobCreation
from edl_kubernetes.job_identities import JobIdentities
from edl_kubernetes.job_objects import JobObjects
from edl_kubernetes.master_links import MasterLinks, fall_back_to_record
from edl_kubernetes.master_pods import describe_lack_of_node
from edl_kubernetes.page_links import page_link
from edl_kubernetes.placement import ClusterPlacement
from edl_kubernetes.plugin import KUBERNETES
from edl_kubernetes.pod_logs import PodLogs
from edl_kubernetes.start import JobStart
from edl_kubernetes.timelines import ClusterTimelines
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2
from edl_runtime.monitoring.log_lines import readable

_PAGE_POLL_S = 2.0


class KubernetesJobBackend:
    """The jobs of one namespace; a job of another namespace is named ``NAMESPACE/NAME``.

    Args:
        cluster: the cluster to work with. While none is chosen, there are no jobs.
    """

    def __init__(self, cluster: ChosenCluster) -> None:
        self.platform = KUBERNETES.name
        self._cluster = cluster
        self.placement = ClusterPlacement(cluster)
        self._objects = JobObjects(cluster)
        self._identities = JobIdentities(cluster, self._objects)
        self._links = MasterLinks(cluster, self._objects, self._identities)
        self.continuation = ClusterContinuation(cluster, self._objects)
        self.timelines = ClusterTimelines(self._objects, self._links)

    @property
    def location(self) -> str:
        return self._cluster.description if self._cluster.is_chosen else ""

    def list(self) -> Sequence[JobEntry]:
        if not self._cluster.is_chosen:
            return []
        return [JobEntry(name, created_s(item)) for name, item in self._objects.jobs()]

    def submit(self, job: Submission, say: Say = silent) -> bool:
        creation = JobCreation.of_submission(self._cluster, self.placement, job)
        created = creation.create(say)
        if created and creation.is_queued:
            say(f"{job.name} waits: {SUSPENDED}")
            return True
        try:
            start = JobStart(self._cluster, self._objects, job.name, job.start_timeout, say)
            start.wait()
        except BaseException as failure:  # Ctrl-C, too
            if created and not self._has_reported(job.name):
                creation.withdraw(failure)
            raise
        if not job.detach:
            self._links.forward_page(job.name)
        return created

    def _has_reported(self, name: str) -> bool:
        """Whether a master has recorded how the job ended; such a job is kept for inspection."""
        try:
            return self._objects.read(name).message().error.code != 0
        except EdlError:
            return False

    def status(self, name: str, *, ask: bool = True) -> StatusReport:
        if ask and self._links.is_open(name):
            # With an open connection, no other call to the cluster is needed.
            with fall_back_to_record():
                return self._ask_master(self._links.connected_job(name), name)
        job = self._objects.read(name)
        status = job.status()
        if ask and not status.state.is_over:
            with fall_back_to_record():
                self._links.connect(job)
                return self._ask_master(job, name)
            status = self._explain_silence(job, status)
        return self._report(job, job.message(), status, answered=False)

    def _explain_silence(self, job: ClusterJob, status: JobStatus) -> JobStatus:
        """Return a recorded status that says if the job's master waits for a node."""
        why = describe_lack_of_node(self._objects.pods(job.name, objects.MASTER))
        if status.pending or not why:
            return status
        return replace(status, pending=f"for its master: {why} What follows is older.")

    def events(self, name: str, after: int = 0) -> Sequence[JobEvent]:
        if self._links.is_open(name):
            with fall_back_to_record():
                return self._links.call(name, lambda it: it.events(after))
        job = self._objects.read(name)
        if not job.status().state.is_over:
            with fall_back_to_record():
                self._links.connect(job)
                return self._links.call(name, lambda it: it.events(after))
        return job.events(after)

    def logs(self, name: str, choice: LogChoice) -> JobLogs:
        self._objects.read(name)
        return PodLogs(
            lambda: self._objects.pods(name),
            lambda pod, query: self._objects.log(name, pod, query),
            lambda: self._objects.read(name).logs(),
            choice,
        )

    def change(self, name: str, setting: Setting) -> Setting:
        self._connect_running(name)
        if isinstance(setting, WorkerRange):
            self._identities.add_workers(name, setting.max)  # the master itself cannot create them
        return self._links.call(name, lambda it: it.change(setting))

    def _connect_running(self, name: str) -> None:
        """Connect to the master of a job that is not over and not suspended."""
        job = self._objects.read(name)
        if job.status().state.is_over:
            raise EdlError(
                ErrorCode.JOB_OVER,
                f"{name} is over ({job.status().state.words})",
                where=self._objects.location(name),
                remedy="edl list --running lists the running jobs.",
            )
        if job.is_suspended:
            raise EdlError(
                ErrorCode.USAGE,
                f"{name} is suspended: no master runs that could change it",
                where=self._objects.location(name),
                remedy="Wait until its queue releases it, or submit it again with other"
                " --num-workers.",
            )
        self._links.connect(job)

    def stop(self, name: str, reason: str, *, now: bool = False) -> None:
        job = self._objects.read(name, needs_spec=not now)
        if now:
            self._objects.suspend(name, reason)
            self._links.disconnect(name)
            return
        if job.status().state.is_over:
            return
        if job.is_suspended:
            # The job waits in a queue, so no master runs that could stop it.
            self._objects.suspend(name, reason)
            return
        try:
            self._links.connect(job)
        except MasterUnreachable:
            if job.record:
                raise
            # No master has ever begun to work, so no progress can be lost.
            self._objects.suspend(name, reason)
            return
        self._links.call(name, lambda it: it.stop(reason))

    def finalize(self, name: str, status: JobStatus) -> JobStatus:
        if self._links.is_open(name):
            with contextlib.suppress(MasterUnreachable, EdlError):
                # The master may have ended already, and then needs no acknowledgement.
                self._links.call(name, lambda it: it.acknowledge())
            self._links.disconnect(name)
        if status.state is JobState.SUCCEEDED:
            return status
        if not status.state.is_final:
            return replace(status, state=JobState.LOST, failure=self._describe_loss(name))
        steps = self.continuation.next_steps(status)
        return replace(status, failure=final_failure(status, steps))

    def delete(self, name: str) -> None:
        self._objects.delete(name)
        self._links.disconnect(name)

    def reach(self, name: str) -> str:
        self._objects.read(name, needs_spec=False)
        return self._links.reach(name)

    def close(self) -> None:
        self._links.close()

    @contextlib.contextmanager
    def serve_page(self, name: str, port: int) -> Iterator[ServedPage]:
        job = self._objects.read(name)
        if job.status().state.is_over and not self._links.reach(name):
            raise EdlError(
                ErrorCode.JOB_OVER,
                f"the page of {name} ended with its master",
                where=self._objects.location(name),
                remedy=f"edl status {name} and edl events {name} show the job;"
                " --keep-page keeps a job's page after its end.",
            )
        url = self._links.forward_page(name, port)
        if not url:
            raise EdlError(
                ErrorCode.MASTER_LOST,
                f"the master of job {name} is not running at the moment",
                where=self._objects.location(name),
                remedy="Try again in a moment.",
            )

        def wait() -> None:
            while self._links.reach(name):
                time.sleep(_PAGE_POLL_S)

        link = page_link(self._cluster, self._objects, name, url)
        yield ServedPage(link, wait, lambda: bool(self._links.reach(name)))

    def _ask_master(self, job: ClusterJob, name: str) -> StatusReport:
        message = self._links.call(name, lambda it: it.status_message())
        message.name = name
        return self._report(job, message, decode_status(message), answered=True)

    def _report(
        self, job: ClusterJob, message: job_pb2.JobStatus, status: JobStatus, *, answered: bool
    ) -> StatusReport:
        url = self._page_url(job, status)
        message.dashboard_url = url
        return StatusReport(
            status=replace(status, dashboard_url=url),
            answered=answered,
            location=self._objects.location(job.name),
            keep_page_s=job.spec.serving.keep_page_s,
            dashboard_url=url,
            page_link=lambda: page_link(self._cluster, self._objects, job.name, url),
            description=lambda: describe(job.spec),
            details=lambda: {
                **to_dict(message),
                "state": status.state.value,
                "pending": status.pending,
            },
            is_passing=is_being_submitted(job.item) or is_being_deleted(job.item),
        )

    def _page_url(self, job: ClusterJob, status: JobStatus) -> str:
        """The URL of the page: the published one, or the one that this process forwards."""
        if status.state.is_over and not job.spec.serving.keep_page_s:
            return ""
        host = job.annotations.get(objects.ANNOTATION_PAGE, "")
        return f"http://{host}/" if host else self._links.page_url(job.name)

    def _describe_loss(self, name: str) -> Failure:
        """The failure of a job whose master is gone and left no final status."""
        lines = PodLogs(
            lambda: self._objects.pods(name),
            lambda pod, query: self._objects.log(name, pod, query),
            lambda: self._objects.read(name).logs(),
            LogChoice("master", tail=ERROR_LINES),
        )
        return Failure(
            code="MASTER_LOST",
            what=f"the master of job {name} is gone and left no final status",
            where=self._objects.location(name),
            remedy=f"edl events {name} shows what happened before; edl delete {name} removes it.",
            detail=readable("\n".join(line.text for line in lines.poll(final=True))),
        )


def kubernetes_jobs(cluster: ChosenCluster | None = None) -> KubernetesJobBackend:
    """Return the job backend for Kubernetes.

    Args:
        cluster: the cluster to work with; by default the one that the settings choose, if any.

    Raises:
        EdlError: USAGE; a settings file that may choose a cluster cannot be read.
    """
    if cluster is None:
        try:
            cluster = ChosenCluster(cluster_choice(os.environ, Path.cwd()))
        except Problem as problem:
            raise error_of(problem) from None
    return KubernetesJobBackend(cluster)
