"""What the parameter plane and the task service do with messages that no sound worker sends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
from fakes.jobs import DEADLINE_S, RunningJob, training_spec
from fakes.threads import ThreadInstance

from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import parameters_pb2, task_pb2
from edl_testing.fake_session import ref
from edl_testing.fake_worker import FakeWorker, WorkerBehavior

RECORDS = 106
NBYTES = 4 * RECORDS


class Held:
    """A worker of a running job that has a lease and waits before its first minibatch."""

    def __init__(self, job: RunningJob, worker: FakeWorker, lease: task_pb2.Lease) -> None:
        self.job = job
        self.worker = worker
        self.lease = lease

    def header(
        self,
        *,
        fingerprint: str | None = None,
        minibatch: int = 0,
        records: int = 1,
        nbytes: int = NBYTES,
        state_nbytes: int = 0,
        next_step: bool = False,
    ) -> parameters_pb2.PushHeader:
        header = parameters_pb2.PushHeader(
            worker_id=self.worker.id,
            incarnation=self.worker.incarnation,
            layout_fingerprint=fingerprint or self.worker.fingerprint,
            claim=parameters_pb2.PushClaim(
                lease=ref(self.lease),
                minibatch=minibatch,
                records=records,
                base_version=self.worker.version,
            ),
            gradient=parameters_pb2.GradientHeader(nbytes=nbytes, state_nbytes=state_nbytes),
        )
        if next_step:
            header.next.SetInParent()
        return header

    def send(self, method: str, *frames: bytes) -> list[bytes]:
        """Frames as they are, through the same channel."""
        call = self.worker.channel.stream_stream(f"/edl.v1.Parameters/{method}")
        return list(call(iter(frames), timeout=200))

    def send_and_return_error(self, method: str, *frames: bytes) -> EdlError:
        with pytest.raises(grpc.RpcError) as caught:
            self.send(method, *frames)
        error = EdlError.from_rpc(caught.value)
        assert error is not None, caught.value
        return error


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    arrived: list[FakeWorker] = []
    here, go = threading.Event(), threading.Event()

    def at_minibatch(worker: FakeWorker, minibatch: int) -> None:
        if not arrived:
            arrived.append(worker)
            here.set()
        while not go.wait(0.01):
            worker.instance.check()

    spec = training_spec(tmp_path)
    spec.workers.min = spec.workers.max = 1
    with RunningJob(
        spec, tmp_path / "job", WorkerBehavior(RECORDS, at_minibatch=at_minibatch)
    ) as job:
        assert here.wait(DEADLINE_S)
        (worker,) = arrived
        (lease,) = worker.held.values()
        yield Held(job, worker, task_pb2.Lease(task=lease.task, token=lease.token))
        # Whatever was tried, the job is none the worse for it.
        go.set()
        assert job.wait() == 0
        assert job.app.report.status().records_trained == 2 * RECORDS


@pytest.mark.parametrize("nbytes", [0, 3, NBYTES - 4, NBYTES + 4, 1 << 62])
def test_a_gradient_of_another_size_is_refused_before_it_is_read(held: Held, nbytes: int) -> None:
    error = held.send_and_return_error("Push", held.header(nbytes=nbytes).SerializeToString())
    assert error.code == ErrorCode.SHAPE_MISMATCH
    assert str(NBYTES) in error.what
    assert str(nbytes) in error.what


def test_a_state_delta_of_another_size_is_refused(held: Held) -> None:
    error = held.send_and_return_error(
        "Push", held.header(state_nbytes=1 << 40).SerializeToString()
    )
    assert error.code == ErrorCode.SHAPE_MISMATCH


def test_initial_values_of_another_size_are_refused(held: Held) -> None:
    header = parameters_pb2.InitializeHeader(
        incarnation=held.worker.incarnation,
        layout_fingerprint=held.worker.fingerprint,
        nbytes=1 << 50,
    )
    assert (
        held.send_and_return_error("Initialize", header.SerializeToString()).code
        == ErrorCode.SHAPE_MISMATCH
    )


def test_only_the_first_initial_values_count(held: Held) -> None:
    reply = held.worker.initialize()
    assert not reply.accepted


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param((), id="nothing"),
        pytest.param((bytes(NBYTES - 4),), id="too little"),
        pytest.param((bytes(NBYTES + 4),), id="too much"),
    ],
)
def test_a_stream_that_is_not_what_its_header_says_is_refused(
    held: Held, frames: tuple[bytes, ...]
) -> None:
    error = held.send_and_return_error("Push", held.header().SerializeToString(), *frames)
    assert error.code == ErrorCode.USAGE


def test_a_stream_without_a_header_is_refused(held: Held) -> None:
    assert held.send_and_return_error("Push").code == ErrorCode.USAGE
    assert held.send_and_return_error("Push", b"\xff\xff\xff\xff").code == ErrorCode.USAGE


def test_a_gradient_of_no_records_is_refused(held: Held) -> None:
    error = held.send_and_return_error(
        "Push", held.header(records=0).SerializeToString(), bytes(NBYTES)
    )
    assert error.code == ErrorCode.USAGE


def test_a_gradient_that_is_not_finite_is_not_applied(held: Held) -> None:
    gradient = np.full(RECORDS, np.nan, np.float32).tobytes()
    first, *rest = held.send("Push", held.header(next_step=True).SerializeToString(), gradient)
    reply = parameters_pb2.PushReply.FromString(first)
    assert reply.outcome == parameters_pb2.INVALID
    assert rest == []
    assert held.job.status().gradients_rejected == 1


def test_another_layout_is_refused(held: Held) -> None:
    header = held.header(fingerprint="0" * 32).SerializeToString()
    assert held.send_and_return_error("Push", header).code == ErrorCode.SHAPE_MISMATCH


def test_a_minibatch_out_of_order_is_refused(held: Held) -> None:
    frames = held.send("Push", held.header(minibatch=5).SerializeToString(), bytes(NBYTES))
    reply = parameters_pb2.PushReply.FromString(frames[0])
    assert reply.outcome == parameters_pb2.OUT_OF_ORDER


def test_nothing_newer_costs_one_small_frame(held: Held) -> None:
    header = parameters_pb2.PullHeader(
        incarnation=held.worker.incarnation,
        layout_fingerprint=held.worker.fingerprint,
        have_version=held.worker.version,
    )
    (frame,) = held.send("Pull", header.SerializeToString())
    reply = parameters_pb2.PullReply.FromString(frame)
    assert (reply.nbytes, reply.initialized) == (0, True)
    assert len(frame) < 32


def test_a_frozen_version_that_is_not_there_is_reported(held: Held) -> None:
    header = parameters_pb2.PullHeader(
        incarnation=held.worker.incarnation,
        layout_fingerprint=held.worker.fingerprint,
        frozen="nothing",
    )
    error = held.send_and_return_error("Pull", header.SerializeToString())
    assert error.code == ErrorCode.VERSION_NOT_FOUND
    assert "'nothing'" in error.what


@pytest.mark.parametrize("method", ["Initialize", "Pull", "Push"])
def test_calls_for_another_incarnation_are_refused(held: Held, method: str) -> None:
    headers = {
        "Initialize": parameters_pb2.InitializeHeader,
        "Pull": parameters_pb2.PullHeader,
        "Push": parameters_pb2.PushHeader,
    }
    header = headers[method](incarnation="00000000", layout_fingerprint=held.worker.fingerprint)
    error = held.send_and_return_error(method, header.SerializeToString())
    assert error.code == ErrorCode.STALE_INCARNATION


Ask = Callable[[FakeWorker], object]


@pytest.mark.parametrize(
    "ask",
    [
        lambda w: w.tasks.Ready(task_pb2.ReadyRequest(incarnation="x")),
        lambda w: w.tasks.Lease(task_pb2.LeaseRequest(incarnation="x")),
        lambda w: w.tasks.Complete(task_pb2.CompleteRequest(incarnation="x")),
        lambda w: w.tasks.Fail(task_pb2.FailRequest(incarnation="x")),
        lambda w: w.tasks.Return(task_pb2.ReturnRequest(incarnation="x")),
        lambda w: w.tasks.Heartbeat(task_pb2.HeartbeatRequest(incarnation="x")),
    ],
    ids=["Ready", "Lease", "Complete", "Fail", "Return", "Heartbeat"],
)
def test_tasks_of_another_incarnation_are_refused(held: Held, ask: Ask) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        ask(held.worker)
    error = EdlError.from_rpc(caught.value)
    assert error is not None
    assert error.code == ErrorCode.STALE_INCARNATION


def test_a_completion_that_is_not_true_is_refused(held: Held) -> None:
    done = task_pb2.CompleteRequest(
        worker_id=held.worker.id,
        incarnation=held.worker.incarnation,
        lease=ref(held.lease),
        minibatches=3,
    )
    with pytest.raises(grpc.RpcError) as caught:
        held.worker.tasks.Complete(done)
    error = EdlError.from_rpc(caught.value)
    assert error is not None
    assert error.code == ErrorCode.STALE_LEASE
    assert "0 of 3" in error.what


def test_a_lease_without_a_task_type_is_refused(held: Held) -> None:
    done = task_pb2.CompleteRequest(incarnation=held.worker.incarnation)
    with pytest.raises(grpc.RpcError) as caught:
        held.worker.tasks.Complete(done)
    error = EdlError.from_rpc(caught.value)
    assert error is not None
    assert error.code == ErrorCode.USAGE


def test_an_unknown_worker_is_asked_to_leave(held: Held) -> None:
    instance = ThreadInstance(worker=7, attempt=0, name="unknown:1:1")
    with FakeWorker(WorkerBehavior(RECORDS), instance, held.job.app.address) as stranger:
        stranger.join()
        reply = stranger.ask()
    assert reply.leave.reason == "unknown-worker"


def test_only_workers_of_the_job_say_what_it_runs_with(held: Held) -> None:
    for worker in (held.worker.id, 7):
        request = task_pb2.RegisterRequest(
            worker_id=worker,
            instance=held.worker.instance.name,
            environment={"keras": f"3.{worker}"},
        )
        held.worker.tasks.Register(request)
    status = held.job.status()
    assert dict(status.worker_environment) == {"keras": f"3.{held.worker.id}"}


def test_what_a_master_says_before_any_model_is_described(tmp_path: Path) -> None:
    ready = threading.Event()

    class Early(FakeWorker):
        def join(self) -> None:
            header = parameters_pb2.PullHeader(incarnation=self.register_only())
            call = self.channel.stream_stream("/edl.v1.Parameters/Pull")
            try:
                list(call(iter([header.SerializeToString()]), timeout=200))
            except grpc.RpcError as error:
                self.behavior.seen.append((0, str(EdlError.from_rpc(error))))
            ready.set()
            super().join()

        def register_only(self) -> str:
            request = task_pb2.RegisterRequest(worker_id=self.id, instance=self.instance.name)
            return str(self.tasks.Register(request).incarnation)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("edl_testing.fake_worker.FakeWorker", Early)
        behavior = WorkerBehavior(RECORDS)
        with RunningJob(training_spec(tmp_path), tmp_path / "job", behavior) as job:
            assert ready.wait(DEADLINE_S)
            assert job.wait() == 0
    assert "NOT_READY" in behavior.seen[0][1]
