"""Watching, scaling and stopping a job that runs, and its page."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from fakes.jobs import DEADLINE_S, RunningJob, intervals, training_spec
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from edl_master.adapters.job_directory import JobDirectory
from edl_master.core.identifiers import WorkerId
from edl_master.core.settings import MAX_WORKERS
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2
from edl_runtime.identity.page_key import PageKey
from edl_testing.fake_worker import FakeWorker, WorkerBehavior
from edl_testing.scrape import scrape


class Gate:
    """Workers stop at a minibatch until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Semaphore(0)
        self.opened = threading.Event()

    def __call__(self, worker: FakeWorker, minibatch: int) -> None:
        self.reached.release()
        deadline = time.monotonic() + DEADLINE_S
        while not self.opened.wait(0.01):
            worker.instance.check()
            if worker.instance.asked.is_set():
                return
            assert time.monotonic() < deadline


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def job(tmp_path: Path, gate: Gate) -> Iterator[RunningJob]:
    """A job whose two workers are in the middle of a task."""
    spec = training_spec(tmp_path)
    with RunningJob(spec, tmp_path / "job", WorkerBehavior(106, at_minibatch=gate)) as running:
        for _ in range(2):
            assert gate.reached.acquire(timeout=DEADLINE_S)
        yield running
        gate.opened.set()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def get(job: RunningJob, path: str) -> tuple[int, dict[str, str], bytes]:
    """Return what a browser with access gets; ``path`` is below the home of the page."""
    key = PageKey.read(job.directory / "page")
    assert key is not None
    url = job.app.dashboard_url.rstrip("/") + key.home + path.lstrip("/")
    request = urllib.request.Request(
        url, headers={"Cookie": f"edl-page={key.session(time.time())}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=200) as reply:
            return reply.status, dict(reply.headers), reply.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


def test_the_status_of_a_running_job_tells_of_its_workers_and_tasks(job: RunningJob) -> None:
    status = job.status()
    assert status.state == job_pb2.RUNNING
    assert [worker.state for worker in status.workers] == ["working", "working"]
    assert [worker.host for worker in status.workers] == ["threads", "threads"]
    assert {worker.task.split("/")[0] for worker in status.workers} == {"training"}
    assert status.tasks["training"].leased == 2
    assert status.workers_wanted == job_pb2.WorkersSpec(min=1, max=2)
    assert status.dashboard_url == job.app.dashboard_url
    assert status.environment["edl-master"]
    assert dict(status.worker_environment) == {"edl-worker": "0.0.fake"}
    assert status.name == "counting"
    assert not status.finished_at


def test_a_job_can_be_stopped(job: RunningJob, gate: Gate) -> None:
    job.job.Stop(job_pb2.StopRequest(reason="enough"), timeout=200)
    assert job.wait() == 1
    status = job.status()
    assert status.state == job_pb2.CANCELLED
    assert status.error.code == ErrorCode.STOPPED
    assert "enough" in status.error.what + status.error.where + status.error.detail
    assert not any(instance.alive for instance in job.platform.machine.instances)
    assert json.loads((job.directory / "status.json").read_text())["state"] == "CANCELLED"
    # Asked again, it is over all the same.
    job.job.Stop(job_pb2.StopRequest(), timeout=200)


def test_a_job_can_be_scaled_up_and_down(job: RunningJob, gate: Gate) -> None:
    reply = job.job.Scale(
        job_pb2.ScaleRequest(workers=job_pb2.WorkersSpec(min=2, max=4)), timeout=200
    )
    assert reply.workers == job_pb2.WorkersSpec(min=2, max=4)
    for _ in range(2):
        assert gate.reached.acquire(timeout=DEADLINE_S)
    assert len([instance for instance in job.platform.machine.instances if instance.alive]) == 4
    job.job.Scale(job_pb2.ScaleRequest(workers=job_pb2.WorkersSpec(min=1, max=1)), timeout=200)
    until(lambda: sum(instance.alive for instance in job.platform.machine.instances) == 1)
    gate.opened.set()
    assert job.wait() == 0
    status = job.status()
    assert status.records_trained == 2 * 106
    assert (status.worker_failures, status.preemptions) == (0, 0)


def test_numbers_of_workers_that_make_no_sense_are_refused(job: RunningJob) -> None:
    for low, high in ((0, 0), (3, 2), (1, MAX_WORKERS + 1), (1, 2**32 - 1)):
        workers = job_pb2.WorkersSpec(min=low, max=high)
        with pytest.raises(grpc.RpcError) as caught:
            job.job.Scale(job_pb2.ScaleRequest(workers=workers), timeout=200)
        error = EdlError.from_rpc(caught.value)
        assert error is not None
        assert error.code == ErrorCode.USAGE
        assert error.remedy


def test_events_are_replayed_and_followed_without_gaps(job: RunningJob, gate: Gate) -> None:
    so_far = list(job.job.WatchEvents(job_pb2.WatchEventsRequest(), timeout=200))
    assert [event.number for event in so_far] == list(range(1, len(so_far) + 1))
    assert so_far[0].kind == "JobStarted"
    watched = job.job.WatchEvents(
        job_pb2.WatchEventsRequest(after=so_far[1].number, follow=True), timeout=DEADLINE_S
    )
    first = next(watched)
    assert first == so_far[2]
    gate.opened.set()
    rest = [first, *watched]
    assert job.wait() == 0
    assert [event.number for event in rest] == list(range(3, 3 + len(rest)))
    assert "JobSucceeded" in {event.kind for event in rest}
    lines = (job.directory / "events.jsonl").read_text().splitlines()
    assert len(lines) == rest[-1].number


def read_timeline(job: RunningJob) -> list[dict[str, Any]]:
    chunks = job.job.ReadTimeline(job_pb2.ReadTimelineRequest(), timeout=DEADLINE_S)
    return [json.loads(line) for chunk in chunks for line in chunk.lines.splitlines()]


def test_the_timeline_says_what_each_worker_does_and_has_done(job: RunningJob, gate: Gate) -> None:
    held = [span for span in read_timeline(job) if "task" in span]
    assert {span["worker"] for span in held} == {0, 1}
    assert {span["outcome"] for span in held} == {"unfinished"}
    # Only who was heard of for a second has a row.
    until(lambda: {s["worker"] for s in read_timeline(job) if "phases" in s} == {0, 1})
    job.platform.kill(WorkerId(0))
    until(lambda: any(span.get("outcome") == "lost" for span in read_timeline(job)))
    gate.opened.set()
    assert job.wait() == 0
    lines = (job.directory / "timeline.jsonl").read_text().splitlines()
    spans = [span for span in map(json.loads, lines) if "task" in span]
    done = [span["task"] for span in spans if span["outcome"] == "done"]
    tasks = job.status().tasks
    assert len(done) == len(set(done)) == sum(counts.done for counts in tasks.values())
    assert {span["outcome"] for span in spans} == {"done", "lost"}
    assert all(span["seconds"] >= 0 for span in spans)

    shown = json.loads(get(job, "/api/timeline")[2])
    ended = [worker["tasks"] for worker in shown["workers"]]
    assert sum(counts.get("done", 0) for counts in ended) == len(done)
    heard = sum(span["seconds"] for span in map(json.loads, lines) if "phases" in span)
    times = [seconds for worker in shown["workers"] for seconds in worker["seconds"]]
    assert sum(times) == pytest.approx(heard, abs=0.1)


def test_the_page_has_status_events_and_metrics(job: RunningJob) -> None:
    code, headers, content = get(job, "/api/status")
    assert code == 200
    status = json.loads(content)
    assert status["state"] == "RUNNING"
    assert status["workers"][0]["state"] == "working"
    assert status["gradients_rejected"] == "0"  # fields without a value are there, too
    assert "default-src 'none'" in headers["Content-Security-Policy"]

    code, _, content = get(job, "/api/events?after=1")
    assert code == 200
    assert [int(event["number"]) for event in json.loads(content)][:2] == [2, 3]

    code, _, content = get(job, "/api/timeline")
    assert code == 200
    assert json.loads(content)["phases"][0] == "compute"

    code, headers, content = get(job, "/metrics")
    assert code == 200
    lines = content.decode().splitlines()
    assert 'edl_workers{state="ready"} 2.0' in lines or 'edl_workers{state="working"} 2.0' in lines
    assert 'edl_tasks{state="leased",type="training"} 2.0' in lines
    assert any(line.startswith("edl_job_info{") and 'type="train"' in line for line in lines)
    assert get(job, "/healthz")[0] == 200
    assert scrape(job.directory.path).splitlines()[0] == lines[0]


def contents_outside(hidden: Path, root: Path) -> dict[Path, bytes]:
    """Files of a job that runs, without the drafts of snapshots that it renames meanwhile."""
    found = {}
    for parent, _, names in os.walk(root):  # passes over a folder that is gone
        for path in (Path(parent) / name for name in names):
            if hidden not in path.parents and path.is_file():
                with contextlib.suppress(FileNotFoundError):
                    found[path] = path.read_bytes()
    return found


def test_nothing_that_is_written_down_opens_the_page(job: RunningJob) -> None:
    until((job.directory / "status.json").exists)
    folder = job.directory / "page"
    key = PageKey.read(folder)
    assert key is not None
    written = contents_outside(folder, job.directory.path)
    assert job.directory.path / "status.json" in written
    for secret in (key.text, key.home.strip("/"), key.metrics_token):
        assert [path for path, content in written.items() if secret.encode() in content] == []
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(job.app.dashboard_url, timeout=200)
    with caught.value:
        assert caught.value.code == 403
    for path in folder.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600


def test_the_page_itself_is_served_and_nothing_beside_it(job: RunningJob) -> None:
    code, headers, content = get(job, "/")
    assert code == 200
    assert headers["Content-Type"].startswith("text/html")
    assert b"<html" in content.lower()
    for path in ("/../app.py", "/..%2fapp.py", "/nothing.js", "/__init__.py", "/%00"):
        assert get(job, path)[0] == 404
    assert get(job, "/api/events?after=x")[0] == 400
    request = urllib.request.Request(job.app.dashboard_url, method="POST", data=b"")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=200)
    with caught.value:
        assert caught.value.code == 501


def test_a_later_master_has_the_page_where_the_former_one_had_it(tmp_path: Path) -> None:
    def url() -> str:
        with RunningJob(training_spec(tmp_path), tmp_path / "job", WorkerBehavior(106)) as job:
            assert job.wait() == 0
            return job.app.dashboard_url

    # Any process of the machine may have taken a port for a moment, but not each time.
    assert len({url() for _ in range(4)}) < 4
    with socket.socket() as taken:
        port = JobDirectory(tmp_path / "job").former_port("dashboard_url")
        taken.bind(("127.0.0.1", port))
        taken.listen()
        assert url() != f"http://127.0.0.1:{port}/"


def test_health_and_reflection_are_served(job: RunningJob) -> None:
    health = health_pb2_grpc.HealthStub(job.channel)
    for service in ("", "edl.v1.Tasks", "edl.v1.Parameters", "edl.v1.Job"):
        reply = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=200)
        assert reply.status == health_pb2.HealthCheckResponse.SERVING
    stub = reflection_pb2_grpc.ServerReflectionStub(job.channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    (answer,) = stub.ServerReflectionInfo(iter([request]), timeout=200)
    names = {service.name for service in answer.list_services_response.service}
    assert {"edl.v1.Tasks", "edl.v1.Job", "edl.v1.Parameters"} <= names


def test_a_finished_job_keeps_its_page_and_ends_when_the_client_has_read_the_result(
    tmp_path: Path,
) -> None:
    spec = training_spec(tmp_path)
    spec.serving.keep_page_s = DEADLINE_S
    slow = intervals(acknowledge_s=DEADLINE_S)
    with RunningJob(spec, tmp_path / "job", WorkerBehavior(106), slow) as job:
        until(lambda: job.status().state == job_pb2.SUCCEEDED)
        assert job.exit_code is None
        assert not any(instance.alive for instance in job.platform.machine.instances)
        assert json.loads(get(job, "/api/status")[2])["state"] == "SUCCEEDED"
        job.job.Acknowledge(job_pb2.AcknowledgeRequest(), timeout=200)
        assert get(job, "/healthz")[0] == 200
        job.app._threads.leave.set()
        assert job.wait() == 0


def test_what_workers_have_counted_is_carried_by_the_master(job: RunningJob, gate: Gate) -> None:
    until(lambda: "edl_worker_steps_total" in job.app.report.metrics().decode())
    gate.opened.set()
    assert job.wait() == 0
    text = job.app.report.metrics().decode()
    assert (
        'edl_parameter_request_duration_seconds_count{method="push"} 64.0' in text
    )  # 32 per epoch
