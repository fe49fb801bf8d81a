"""Every command about a job on a real cluster, whose master is fake."""

from __future__ import annotations

import json
from typing import Any

import grpc
import pytest
from submitter import Submitter, eventually

from edl.core.job_status import JobState
from edl.core.options.value_types import WorkerRange
from edl_kubernetes.cluster import objects
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.transport import channels
from edl_proto.v1 import job_pb2, job_pb2_grpc


def test_a_job_is_watched_scaled_lost_resumed_stopped_and_deleted(submitter: Submitter) -> None:
    done = submitter.train("--pod-template", submitter.play("endless"), "--detach", name="live")
    assert done.code == 0, done.err
    other = submitter.backend()
    eventually(lambda: other.status("live").status.state is JobState.RUNNING, "the job runs")
    assert [entry.name for entry in other.list()] == ["live"]
    # The address is open to this user alone; the link of the backend proves who it is.
    with channels.connect(other.reach("live")) as channel:
        with pytest.raises(grpc.RpcError) as refused:
            job_pb2_grpc.JobStub(channel).Stop(job_pb2.StopRequest(reason="me"), timeout=200)
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
    assert other.change("live", WorkerRange(1, 3)) == WorkerRange(1, 3)
    assert "secret/edl-live.workers-1" not in submitter.list_objects()
    assert other.change("live", WorkerRange(1, 65)) == WorkerRange(1, 65)
    assert "secret/edl-live.workers-1" in submitter.list_objects(), "the master could not make it"
    # Everything that was made goes with the Job.
    for name in submitter.list_objects():
        item = json.loads(submitter.kubectl("get", name, "--output=json"))
        owners = [it["name"] for it in item["metadata"].get("ownerReferences", ())]
        assert owners == ["edl-live"] or name == "job.batch/edl-live"
    kinds = {event.kind for event in other.events("live")}
    assert {"JobStarted", "Scaled"} <= kinds
    with other.serve_page("live", 0) as page:
        import urllib.request

        with urllib.request.urlopen(page.url, timeout=200) as answer:
            assert answer.read() == b"the page of a fake job"

    in_namespace = ("-n", submitter.namespace)
    listed = submitter.edl("list", "-A", "-o", "name")
    assert f"{submitter.namespace}/live" in listed.out.split()
    logs = submitter.edl("logs", "live", *in_namespace)
    assert "[master] fake job listens" in logs.out
    before = other.reach("live")
    submitter.kubectl("delete", "pod", "--selector", f"{objects.LABEL_ROLE}=master", "--wait=false")
    eventually(lambda: other.reach("live") not in ("", before), "another master answers")

    stopped = submitter.edl("stop", "live", "--now", *in_namespace)
    assert "edl resume live starts it again" in stopped.err, "it is cancelled, not lost"
    eventually(lambda: not submitter.has_pods(), "all pods are gone")
    fewer = submitter.edl("resume", "live", "--num-epochs", "1", *in_namespace)
    assert (fewer.code, "live has 1 epoch already" in fewer.err) == (2, True), fewer
    assert other.continuation.resume("live", num_epochs=5)
    assert not other.continuation.resume("live")
    eventually(lambda: other.status("live").status.state is JobState.RUNNING, "it runs again")
    more = submitter.edl("resume", "live", "--num-epochs", "6", *in_namespace)
    assert (more.code, "only a job that is over can get more epochs" in more.err) == (5, True), more
    assert f"{objects.ANNOTATION_EPOCHS}: 5" in submitter.kubectl("describe", "job", "edl-live")
    stopped = submitter.edl("stop", "live", *in_namespace, "-o", "json")
    assert json.loads(stopped.out)["state"] == "CANCELLED", stopped
    eventually(lambda: other.status("live", ask=False).is_over, "that is recorded")
    assert "JobStopped" in {event.kind for event in other.events("live")}
    deleted = submitter.edl("delete", "live", "--yes", *in_namespace)
    assert deleted.code == 0, deleted
    assert other.list() == []
    eventually(lambda: submitter.list_objects() == [], "everything is gone")
    other.close()


def test_the_end_and_a_first_word_of_the_master_reach_the_caller(submitter: Submitter) -> None:
    done = submitter.train("--pod-template", submitter.play("early"), name="early")
    assert done.code == 3, done
    assert "chunk 3 is damaged" in done.err
    backend = submitter.backend()
    assert backend.status("early").status.state is JobState.FAILED, "it can be looked at"
    for call in (
        lambda: backend.change("early", WorkerRange(1, 1)),
        lambda: backend.continuation.resume("early"),
    ):
        with pytest.raises(EdlError) as caught:
            call()
        assert caught.value.code == ErrorCode.JOB_OVER
    backend.delete("early")
    with pytest.raises(EdlError) as caught:
        backend.status("missing")
    assert caught.value.code == ErrorCode.JOB_NOT_FOUND
    backend.close()


def test_a_queue_starts_preempts_and_starts_a_job_again(submitter: Submitter) -> None:
    """A queue acts as Kueue does: by ``suspend``, and by the nodes that it assigns."""
    queue = ("--labels", "kueue.x-k8s.io/queue-name=training", "--labels", "team=a")
    done = submitter.train(
        "--pod-template", submitter.play("endless"), *queue, "--detach", name="queued"
    )
    assert done.code == 0, done.err

    def job() -> dict[str, Any]:
        found = submitter.kubectl("get", "job", "edl-queued", "--output=json")
        item: dict[str, Any] = json.loads(found)
        return item

    def admit(suspend: bool, **spec: Any) -> None:
        changes = json.dumps({"spec": {"suspend": suspend, **spec}})
        submitter.kubectl("patch", "job", "edl-queued", "--type=merge", f"--patch={changes}")

    made = job()
    assert made["spec"]["suspend"], "its queue releases it"
    for labels in (made["metadata"]["labels"], made["spec"]["template"]["metadata"]["labels"]):
        assert labels["kueue.x-k8s.io/queue-name"] == "training"
        assert labels["team"] == "a"
    backend = submitter.backend()
    assert "suspended until a queue" in backend.status("queued").status.pending
    assert not submitter.has_pods()

    nodes = {"spec": {"nodeSelector": {"kubernetes.io/os": "linux"}}}
    admit(False, template=nodes)
    eventually(lambda: backend.status("queued").status.state is JobState.RUNNING, "it runs")
    assert backend.status("queued").status.pending == ""
    admit(True)
    eventually(lambda: not submitter.has_pods(), "preempted")
    seen = backend.status("queued").status
    assert not seen.state.is_over
    assert "suspended until a queue" in seen.pending
    admit(False)
    eventually(lambda: backend.status("queued").answered, "it runs again")
    backend.close()
    gone = submitter.edl("delete", "queued", "--stop", "--yes", "-n", submitter.namespace)
    assert gone.code == 0, gone
    eventually(lambda: submitter.list_objects() == [], "everything is gone")
