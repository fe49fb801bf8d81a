"""What the backend says of a job whose master does not answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from edl.plugins.backends import MasterUnreachable
from edl_kubernetes.backend import kubernetes_jobs
from edl_kubernetes.cluster import objects
from edl_kubernetes.cluster_job import ClusterJob
from edl_proto.v1 import job_pb2


class NoLinks:
    """Masters that do not answer."""

    def is_open(self, name: str) -> bool:
        return False

    def connect(self, job: ClusterJob) -> None:
        raise MasterUnreachable("no pod is ready")

    def page_url(self, name: str) -> str:
        return ""


@pytest.mark.parametrize("node", ["", "node1"])
def test_a_master_that_waits_for_a_node_is_no_running_one(
    node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record still says what its last master has written."""
    pod = {
        "metadata": {"name": "edl-digits-1", "creationTimestamp": "2026-11-22T20:00:00Z"},
        "spec": {"nodeName": node},
        "status": {
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "0/1 nodes are available: 1 node(s) were unschedulable.",
                }
            ]
        },
    }
    record = {objects.STATUS_KEY: '{"state": "RUNNING"}'}
    job = ClusterJob("digits", {"metadata": {}, "spec": {}}, record, job_pb2.JobSpec())
    found = SimpleNamespace(
        read=lambda name: job, pods=lambda name, role: [pod], location=lambda name: "here"
    )
    backend = kubernetes_jobs(cast(Any, None))
    monkeypatch.setattr(backend, "_objects", found)
    monkeypatch.setattr(backend, "_links", NoLinks())
    waits = backend.status("digits").status.pending
    assert ("were unschedulable. What follows is older." in waits) is (not node)
    assert not backend.status("digits", ask=False).status.pending


def test_a_job_that_waits_for_its_queue_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    creation = SimpleNamespace(create=lambda say: True, is_queued=True)
    made = SimpleNamespace(of_submission=lambda *given: creation)
    monkeypatch.setattr("edl_kubernetes.backend.JobCreation", made)
    said: list[str] = []
    job = cast(Any, SimpleNamespace(name="digits"))
    assert kubernetes_jobs(cast(Any, None)).submit(job, said.append)
    (line,) = said
    assert line.startswith("digits waits: its Job is suspended until a queue")
