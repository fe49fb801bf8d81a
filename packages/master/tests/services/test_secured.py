"""A master whose job is secured: who gets in, what they may do, and that the job works."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from fakes.jobs import RunningJob, trained_weights, training_spec
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from edl_proto.errors import EdlError, ErrorCode
from edl_proto.identity.credentials import Credentials
from edl_proto.identity.names import Role
from edl_proto.identity.rules import RULES
from edl_proto.transport import channels
from edl_proto.transport.parameters import PARAMETERS, ParametersStub
from edl_proto.v1 import job_pb2, job_pb2_grpc, parameters_pb2, task_pb2, task_pb2_grpc
from edl_runtime.identity.folder import IdentityFolder
from edl_runtime.local import job_directory
from edl_testing.fake_worker import WorkerBehavior

WAIT_S = 200.0
RECORDS = 106


class Held:
    """A secured job whose workers wait in their first minibatch until the test lets them go."""

    def __init__(self, place: Path, opened: ExitStack) -> None:
        self.goes_on = threading.Event()
        self.spec = training_spec(place)
        job_dir = place / "job"
        job_dir.mkdir()
        identities = IdentityFolder(job_dir / job_directory.IDENTITY, self.spec.name)
        identities.create([(Role.MASTER, None)])
        behavior = WorkerBehavior(
            RECORDS,
            at_minibatch=self._hold,
            master_for=lambda worker: Credentials(identities.provide(Role.WORKER, worker)).to(
                Role.MASTER
            ),
        )
        self.job = opened.enter_context(RunningJob(self.spec, job_dir, behavior))
        opened.callback(self.goes_on.set)  # before the job is closed
        assert behavior.ready.acquire(timeout=WAIT_S)

    def _hold(self, worker: object, minibatch: int) -> None:
        self.goes_on.wait(WAIT_S)


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    with ExitStack() as opened:
        yield Held(tmp_path, opened)


def refusal(call: Any) -> ErrorCode.ValueType | None:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    known = EdlError.from_rpc(caught.value)
    return known.code if known is not None else None


def test_a_secured_job_trains_every_record_once(held: Held) -> None:
    held.goes_on.set()
    assert held.job.wait() == 0
    assert np.all(trained_weights(held.spec) == held.spec.training.num_epochs)


def test_a_worker_cannot_act_as_another(held: Held) -> None:
    """Neither over gRPC nor over a direct connection of either kind; nor can it control the job."""
    address, peer = held.job.app.address, held.job.master_for(Role.WORKER, 7)
    status = held.job.status()
    with channels.connect(address, peer) as channel:
        tasks, job = task_pb2_grpc.TasksStub(channel), job_pb2_grpc.JobStub(channel)
        register = task_pb2.RegisterRequest(worker_id=0, instance="false")
        give_back = task_pb2.ReturnRequest(
            worker_id=0, incarnation=status.incarnation, leaving=True
        )
        scale = job_pb2.ScaleRequest(workers=job_pb2.WorkersSpec(min=1, max=50))
        assert {
            refusal(lambda: tasks.Register(register, timeout=WAIT_S)),
            refusal(lambda: tasks.Return(give_back, timeout=WAIT_S)),
            refusal(lambda: job.Scale(scale, timeout=WAIT_S)),
            refusal(lambda: job.Stop(job_pb2.StopRequest(reason="me"), timeout=WAIT_S)),
            refusal(lambda: job.GetStatus(job_pb2.GetStatusRequest(), timeout=WAIT_S)),
        } == {ErrorCode.FORBIDDEN}
        by_name = f"localhost:{address.rpartition(':')[2]}"  # through TLS: it may be far away
        for where in (address, by_name, ""):
            stub = ParametersStub(channel, where, peer)
            push = parameters_pb2.PushHeader(worker_id=0, incarnation=status.incarnation)
            assert refusal(partial(stub.push, push, (), bytearray, WAIT_S)) == ErrorCode.FORBIDDEN
            stub.close()
    assert [worker.id for worker in held.job.status().workers] == [w.id for w in status.workers]


def test_a_stranger_gets_nowhere(held: Held, tmp_path: Path) -> None:
    """A stranger is another user without a certificate, or one with another job's."""
    other = IdentityFolder(tmp_path / "other", held.spec.name)
    other.create([(Role.CLIENT, None)])
    stranger = Credentials(other.file(Role.CLIENT)).to(Role.MASTER)
    for peer in (None, stranger):
        with channels.connect(held.job.app.address, peer) as channel:
            job = job_pb2_grpc.JobStub(channel)
            with pytest.raises(grpc.RpcError) as caught:
                job.Stop(job_pb2.StopRequest(reason="me"), timeout=WAIT_S)
            assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    assert held.job.status().state == job_pb2.RUNNING


def test_every_service_of_the_port_is_in_the_rules(held: Held) -> None:
    """The port itself lists the services that it serves."""
    reflection = reflection_pb2_grpc.ServerReflectionStub(held.job.channel)
    ask = reflection_pb2.ServerReflectionRequest(list_services="")
    (answer,) = reflection.ServerReflectionInfo(iter([ask]), timeout=WAIT_S)
    served = {service.name for service in answer.list_services_response.service}
    assert PARAMETERS.name in served
    assert served <= {path.split("/")[1] for path in RULES}
