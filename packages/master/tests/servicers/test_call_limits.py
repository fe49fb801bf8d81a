"""Calls that wait are limited, and the others are not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent import futures

import grpc
import pytest

from edl_master.servicers.call_limits import CallLimits
from edl_proto.v1 import job_pb2, job_pb2_grpc

DEADLINE_S = 200.0


class Waiting(job_pb2_grpc.JobServicer):
    """Calls that wait until they may go on."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.go = threading.Event()

    def GetStatus(self, request: job_pb2.GetStatusRequest, context: object) -> job_pb2.JobStatus:
        return job_pb2.JobStatus(name="job")

    def Stop(self, request: job_pb2.StopRequest, context: object) -> job_pb2.StopReply:
        self.begun.release()
        assert self.go.wait(DEADLINE_S)
        return job_pb2.StopReply()

    def WatchEvents(
        self, request: job_pb2.WatchEventsRequest, context: object
    ) -> Iterator[job_pb2.Event]:
        self.begun.release()
        assert self.go.wait(DEADLINE_S)
        yield job_pb2.Event(kind="Seen")


@pytest.fixture
def waiting() -> Iterator[tuple[Waiting, job_pb2_grpc.JobStub]]:
    servicer = Waiting()
    limits = CallLimits({"/edl.v1.Job/Stop": 1, "/edl.v1.Job/WatchEvents": 1})
    server = grpc.server(futures.ThreadPoolExecutor(8), interceptors=[limits])
    job_pb2_grpc.add_JobServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield servicer, job_pb2_grpc.JobStub(channel)
        servicer.go.set()
    server.stop(0).wait()


def test_a_call_above_the_limit_is_refused_as_unavailable(
    waiting: tuple[Waiting, job_pb2_grpc.JobStub],
) -> None:
    servicer, job = waiting
    first = job.Stop.future(job_pb2.StopRequest(), timeout=DEADLINE_S)
    assert servicer.begun.acquire(timeout=DEADLINE_S)
    with pytest.raises(grpc.RpcError) as caught:
        job.Stop(job_pb2.StopRequest(), timeout=DEADLINE_S)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    # Methods without a limit are served meanwhile.
    assert job.GetStatus(job_pb2.GetStatusRequest(), timeout=DEADLINE_S).name == "job"
    servicer.go.set()
    first.result()
    assert job.Stop(job_pb2.StopRequest(), timeout=DEADLINE_S) == job_pb2.StopReply()


def test_streams_are_limited_and_give_their_place_back(
    waiting: tuple[Waiting, job_pb2_grpc.JobStub],
) -> None:
    servicer, job = waiting
    first = job.WatchEvents(job_pb2.WatchEventsRequest(), timeout=DEADLINE_S)
    assert servicer.begun.acquire(timeout=DEADLINE_S)
    with pytest.raises(grpc.RpcError) as caught:
        list(job.WatchEvents(job_pb2.WatchEventsRequest(), timeout=DEADLINE_S))
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    servicer.go.set()
    assert [event.kind for event in first] == ["Seen"]
    again = job.WatchEvents(job_pb2.WatchEventsRequest(), timeout=DEADLINE_S)
    assert [event.kind for event in again] == ["Seen"]
