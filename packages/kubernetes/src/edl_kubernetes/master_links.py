"""Connections to masters through the API server."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from edl.plugins.backends import JobServiceClient, MasterUnreachable
from edl_kubernetes.chosen_cluster import ChosenCluster
from edl_kubernetes.cluster import objects
from edl_kubernetes.cluster_job import ClusterJob
from edl_kubernetes.job_identities import ClientIdentity, JobIdentities
from edl_kubernetes.job_objects import JobObjects
from edl_kubernetes.master_pods import ready_pod
from edl_kubernetes.port_forward import PortForward
from edl_proto.errors import EdlError, ErrorCode

T = TypeVar("T")


@dataclass(slots=True)
class _Link:
    """The connection to one pod."""

    pod: str
    calls: PortForward
    job: ClusterJob | None = None
    client: JobServiceClient | None = None
    identity: ClientIdentity | None = None
    page: PortForward | None = field(default=None)

    def close(self) -> None:
        if self.client is not None:
            self.client.close()
        if self.identity is not None:
            self.identity.close()
        self.calls.close()
        if self.page is not None:
            self.page.close()


class MasterLinks:
    """One connection for each job, to the pod that is its master at the moment."""

    def __init__(
        self, cluster: ChosenCluster, job_objects: JobObjects, identities: JobIdentities
    ) -> None:
        self._cluster = cluster
        self._objects = job_objects
        self._identities = identities
        self._links: dict[str, _Link] = {}

    def is_open(self, name: str) -> bool:
        """Return whether a job's master can be called without asking the cluster again."""
        link = self._links.get(name)
        return link is not None and link.job is not None

    def connected_job(self, name: str) -> ClusterJob:
        """Return a connected job as it was when the connection was made."""
        job = self._links[name].job
        assert job is not None
        return job

    def connect(self, job: ClusterJob) -> None:
        """Connect to the master of a job.

        Raises:
            MasterUnreachable: no pod is ready.
        """
        if not self.reach(job.name):
            raise MasterUnreachable(f"no pod of the master of {job.name} is ready")
        self._links[job.name].job = job

    def call(self, name: str, call: Callable[[JobServiceClient], T]) -> T:
        """Call a connected master, and return its answer; disconnect it if it does not answer.

        Raises:
            MasterUnreachable: it did not answer.
            EdlError: FORBIDDEN; this user may not read the job's authority.
        """
        link = self._links[name]
        if link.client is None:
            link.identity = self._identities.client(name)
            peer = link.identity.master if link.identity is not None else None
            link.client = JobServiceClient(link.calls.address, peer)
        try:
            return call(link.client)
        except MasterUnreachable:
            self.disconnect(name)
            raise

    def reach(self, name: str) -> str:
        """Return the master's address on this machine; empty if no pod is ready."""
        pod = ready_pod(self._objects.pods(name, objects.MASTER))
        if pod is None:
            self.disconnect(name)
            return ""
        own = str(pod["metadata"]["name"])
        link = self._links.get(name)
        if link is None or link.pod != own:
            self.disconnect(name)
            link = _Link(own, self._forward(name, own, objects.MASTER_PORT))
            self._links[name] = link
        return link.calls.address

    def forward_page(self, name: str, port: int = 0) -> str:
        """Return the URL of the page on this machine; empty if no pod is ready.

        Raises:
            EdlError: PORT_IN_USE.
        """
        if not self.reach(name):
            return ""
        link = self._links[name]
        if link.page is None:
            link.page = self._forward(name, link.pod, objects.PAGE_PORT, port)
        return self.page_url(name)

    def page_url(self, name: str) -> str:
        """Return the URL of the page if this process forwards it; empty otherwise."""
        link = self._links.get(name)
        return f"http://{link.page.address}/" if link is not None and link.page else ""

    def disconnect(self, name: str) -> None:
        """Close a connection. Harmless if there is none."""
        if (link := self._links.pop(name, None)) is not None:
            with contextlib.suppress(OSError):
                link.close()

    def close(self) -> None:
        """Close all connections."""
        for name in list(self._links):
            self.disconnect(name)

    def _forward(self, name: str, pod: str, port: int, local_port: int = 0) -> PortForward:
        try:
            api = self._cluster.connect().api
            return PortForward(api, self._objects.pod_path(name, pod), port, local_port)
        except OSError as error:
            raise EdlError(
                ErrorCode.PORT_IN_USE,
                f"port {local_port} is not available: {error.strerror}",
                where=f"127.0.0.1:{local_port}",
                remedy="Choose another --port, or omit the option for any free port.",
            ) from None


@contextlib.contextmanager
def fall_back_to_record() -> Iterator[None]:
    """Continue after the block if no master answers, or if it refuses this user."""
    try:
        yield
    except MasterUnreachable:
        pass
    except EdlError as error:
        if error.code != ErrorCode.FORBIDDEN:
            raise
