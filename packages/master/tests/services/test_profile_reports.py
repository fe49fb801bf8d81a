"""A worker hands its profile in over gRPC, and the events say where it lies."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import grpc
from fakes.jobs import RunningJob, training_spec

from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2, task_pb2
from edl_testing.fake_worker import FakeWorker, WorkerBehavior


class Sender:
    """Sends a profile before a worker's first minibatch, and keeps the master's refusal."""

    def __init__(self) -> None:
        self.sent = False
        self.refusal: EdlError | None = None

    def __call__(self, worker: FakeWorker, minibatch: int) -> None:
        if self.sent:
            return
        self.sent = True
        request = task_pb2.WriteProfileRequest(
            worker_id=worker.id,
            incarnation=worker.incarnation,
            content=gzip.compress(b"profile"),
            last=True,
        )
        try:
            worker.tasks.WriteProfile(request, timeout=200)
        except grpc.RpcError as error:
            self.refusal = EdlError.from_rpc(error)


def run(tmp_path: Path, spec: job_pb2.JobSpec) -> tuple[Sender, list[dict[str, object]]]:
    spec.workers.min = spec.workers.max = 1
    sender = Sender()
    with RunningJob(spec, tmp_path / "job", WorkerBehavior(106, at_minibatch=sender)) as job:
        assert job.wait() == 0
    lines = (tmp_path / "job" / "events.jsonl").read_text().splitlines()
    return sender, [event for event in map(json.loads, lines) if event["kind"] == "ProfileWritten"]


def test_the_events_say_where_a_profile_lies(tmp_path: Path) -> None:
    spec = training_spec(tmp_path)
    spec.training.profile.MergeFrom(job_pb2.StepRange(first=1, last=2))
    sender, events = run(tmp_path, spec)
    assert sender.refusal is None
    path = Path(spec.tensorboard_dir, "plugins", "profile", spec.name, "worker-0.xplane.pb")
    assert path.read_bytes() == b"profile"
    (event,) = events
    assert event["facts"] == {"worker": "0", "path": str(path)}
    assert str(path) in str(event["message"])


def test_a_job_that_asks_for_no_profile_takes_none(tmp_path: Path) -> None:
    sender, events = run(tmp_path, training_spec(tmp_path))
    assert sender.refusal is not None
    assert sender.refusal.code == ErrorCode.FORBIDDEN
    assert not events
