"""One worker of a secured job is hostile: it does nothing to the leases of another, or to metrics.

It has its own identity, speaks the protocol, and knows all tokens: they only count up.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from fakes.jobs import (
    RunningJob,
    complete_spec,
    set_update,
    trained_weights,
    training_spec,
    write_numbers,
)

from edl_master.adapters.prediction_output import PredictionOutput
from edl_master.core.identifiers import HeldLease
from edl_master.parameters import push_codec
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.identity.credentials import Credentials
from edl_proto.identity.names import Role
from edl_proto.transport import channels
from edl_proto.transport.parameters import ParametersStub
from edl_proto.v1 import error_pb2, job_pb2, parameters_pb2, task_pb2, task_pb2_grpc
from edl_runtime.identity.folder import IdentityFolder
from edl_runtime.local import job_directory
from edl_testing.fake_worker import FakeWorker, WorkerBehavior

WAIT_S = 100.0
RECORDS = 106
VICTIM, HOSTILE = 0, 1
MAX_32, MAX_64 = 2**32 - 1, 2**64 - 1


class Attacked:
    """A job of two workers, which wait in their first minibatch until the test lets them go."""

    def __init__(self, place: Path, update: str, opened: ExitStack) -> None:
        self.goes_on = threading.Event()
        self.workers: dict[int, FakeWorker] = {}
        self._held = threading.Semaphore(0)
        self.spec = training_spec(place)
        self.spec.workers.CopyFrom(job_pb2.WorkersSpec(min=2, max=2))
        self.spec.worker_grace_s = 1.0  # an attacker does not leave by itself, and is waited for
        set_update(self.spec, update)
        job_dir = place / "job"
        job_dir.mkdir()
        identities = IdentityFolder(job_dir / job_directory.IDENTITY, self.spec.name)
        identities.create([(Role.MASTER, None)])
        behavior = WorkerBehavior(
            RECORDS,
            sync=update == "SYNC",
            at_minibatch=self._hold,
            master_for=lambda worker: Credentials(identities.provide(Role.WORKER, worker)).to(
                Role.MASTER
            ),
        )
        self.job = opened.enter_context(RunningJob(self.spec, job_dir, behavior))
        opened.callback(self.goes_on.set)  # before the job is closed
        for _ in (VICTIM, HOSTILE):
            assert self._held.acquire(timeout=WAIT_S)
        peer = self.job.master_for(Role.WORKER, HOSTILE)
        self.channel = opened.enter_context(channels.connect(self.job.app.address, peer))
        self.tasks = task_pb2_grpc.TasksStub(self.channel)
        self.parameters = ParametersStub(self.channel, self.job.app.address, peer)
        opened.callback(self.parameters.close)
        self.incarnation = self.job.status().incarnation

    def _hold(self, worker: FakeWorker, minibatch: int) -> None:
        if worker.id not in self.workers:
            self.workers[worker.id] = worker
            self._held.release()
        self.goes_on.wait(WAIT_S)

    def lease_of(self, worker: int) -> task_pb2.LeaseRef:
        (lease,) = self.workers[worker].held.values()
        return lease

    def finish(self) -> None:
        """Let the job end, and check that every record has trained once in each epoch."""
        self.goes_on.set()
        assert self.job.wait() == 0
        assert np.all(trained_weights(self.spec) == self.spec.training.num_epochs)


@pytest.fixture(params=["ASYNC", "SYNC"])
def attacked(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Attacked]:
    with ExitStack() as opened:
        yield Attacked(tmp_path, request.param, opened)


def leases_of_others(attacked: Attacked) -> list[task_pb2.LeaseRef]:
    """The victim's lease, and all that resembles it or the attacker's own."""
    victim, own = attacked.lease_of(VICTIM), attacked.lease_of(HOSTILE)
    tokens = {victim.token, own.token, 0, 1, victim.token + 1, 100, MAX_64}
    numbers = {victim.task.number, own.task.number, 0, 10**6, MAX_64}
    rounds = {victim.task.round, 1, MAX_32}
    types = [one for one in task_pb2.TaskType.values() if one != task_pb2.TASK_TYPE_UNSPECIFIED]
    every = [
        task_pb2.LeaseRef(
            task=task_pb2.TaskKey(type=kind, round=round_, number=number), token=token
        )
        for kind, round_, number, token in itertools.product(types, rounds, numbers, tokens)
    ]
    return [lease for lease in every if lease != own]


def code_of(call: Callable[[], Any]) -> int | None:
    """How a call is refused; None: it is answered."""
    try:
        call()
    except grpc.RpcError as error:
        return known.code if (known := EdlError.from_rpc(error)) is not None else -1
    return None


def test_a_worker_can_do_nothing_to_the_lease_of_another(attacked: Attacked) -> None:
    """Report, fail, return, renew, take its permit, or push for it."""
    before = attacked.job.status()
    me: dict[str, Any] = {"worker_id": HOSTILE, "incarnation": attacked.incarnation}
    fingerprint = attacked.workers[HOSTILE].fingerprint
    gradient = np.full(RECORDS, 1e6, np.float32).view(np.uint8).data
    leases = leases_of_others(attacked)
    refused = 0
    for lease in leases:
        done = task_pb2.CompleteRequest(
            **me,
            lease=lease,
            minibatches=0,
            records=MAX_64,
            examples=MAX_64,
            metrics={"accuracy": math.nan},
        )
        failed = task_pb2.FailRequest(
            **me, lease=lease, permanent=True, error=error_pb2.Error(what="it is bad")
        )
        permit = parameters_pb2.PullHeader(**me, layout_fingerprint=fingerprint, permit_for=lease)
        claim = parameters_pb2.PushClaim(lease=lease, minibatch=0, records=MAX_32, base_version=0)
        push = parameters_pb2.PushHeader(
            **me,
            layout_fingerprint=fingerprint,
            claim=claim,
            gradient=parameters_pb2.GradientHeader(nbytes=gradient.nbytes),
            step=parameters_pb2.StepReport(loss=math.nan, compute_s=-math.inf),
        )
        assert code_of(partial(attacked.tasks.Complete, done, timeout=WAIT_S)) == (
            ErrorCode.STALE_LEASE
        )
        assert code_of(partial(attacked.tasks.Fail, failed, timeout=WAIT_S)) == (
            ErrorCode.STALE_LEASE
        )
        assert code_of(partial(attacked.parameters.pull, permit, bytearray, WAIT_S)) == (
            ErrorCode.STALE_LEASE
        )
        reply = attacked.parameters.push(push, (gradient,), bytearray, WAIT_S)
        assert reply.outcome == parameters_pb2.REFUSED
        attacked.tasks.Return(task_pb2.ReturnRequest(**me, leases=[lease]), timeout=WAIT_S)
        refused += 5
    named = [attacked.workers[VICTIM].instance.name, "", "another:1:1", "x" * 256]
    own = attacked.workers[HOSTILE].instance.name
    for instance in (own, *named):
        beat = task_pb2.HeartbeatRequest(**me, instance=instance, leases=leases[:999])
        answer = attacked.tasks.Heartbeat(beat, timeout=WAIT_S)
        assert list(answer.lost) == leases[:999]
        assert answer.leave == (instance != own)
    assert refused == 5 * len(leases) > 1000
    after = attacked.job.status()
    assert [(w.id, w.task, w.state) for w in after.workers] == [
        (w.id, w.task, w.state) for w in before.workers
    ]
    assert after.tasks == before.tasks
    assert after.records_trained == before.records_trained
    attacked.finish()


def test_a_worker_that_leaves_with_the_leases_of_another_takes_none(attacked: Attacked) -> None:
    """It names the instance of the other one, too."""
    victim = attacked.workers[VICTIM]
    for instance in (victim.instance.name, "another:1:1"):
        leaving = task_pb2.ReturnRequest(
            worker_id=HOSTILE,
            incarnation=attacked.incarnation,
            instance=instance,
            leases=[attacked.lease_of(VICTIM)],
            leaving=True,
            reason="terminated",
        )
        attacked.tasks.Return(leaving, timeout=WAIT_S)
    status = {worker.id: worker for worker in attacked.job.status().workers}
    assert status[VICTIM].task
    assert status[VICTIM].state == status[HOSTILE].state == "working"
    attacked.finish()


def test_a_worker_that_registers_as_the_process_of_another_ends_only_itself(
    attacked: Attacked,
) -> None:
    victim = attacked.workers[VICTIM]
    register = task_pb2.RegisterRequest(
        worker_id=HOSTILE, instance=victim.instance.name, host="threads", pid=1
    )
    attacked.tasks.Register(register, timeout=WAIT_S)
    failed = task_pb2.FailRequest(
        worker_id=HOSTILE,
        incarnation=attacked.incarnation,
        instance=victim.instance.name,
        error=error_pb2.Error(what="it is bad"),
    )
    attacked.tasks.Fail(failed, timeout=WAIT_S)
    status = {worker.id: worker for worker in attacked.job.status().workers}
    assert status[VICTIM].task
    assert status[VICTIM].state == "working"
    assert not victim.instance.asked.is_set()
    assert not victim.instance.killed.is_set()
    attacked.finish()


def test_a_recorded_push_counts_once_and_only_for_whom_it_was(attacked: Attacked) -> None:
    """Sent again by another worker with its own certificate, or by its sender, whenever."""
    victim, lease = attacked.workers[VICTIM], attacked.lease_of(VICTIM)
    gradient = np.full(RECORDS, 1e6, np.float32).view(np.uint8).data
    record_lease = parameters_pb2.PushHeader(
        worker_id=VICTIM,
        incarnation=attacked.incarnation,
        layout_fingerprint=victim.fingerprint,
        claim=parameters_pb2.PushClaim(lease=lease, records=4, base_version=victim.version or 0),
        gradient=parameters_pb2.GradientHeader(nbytes=gradient.nbytes),
    )
    peer = attacked.job.master_for(Role.WORKER, HOSTILE)
    port = attacked.job.app.address.rpartition(":")[2]
    for where in (attacked.job.app.address, f"localhost:{port}", ""):
        stub = ParametersStub(attacked.channel, where, peer)
        again = partial(stub.push, record_lease, (gradient,), bytearray, WAIT_S)
        assert code_of(again) == ErrorCode.FORBIDDEN
        stub.close()
    # Its sender, once the lease is not its own any more: before, it is the worker's own gradient.
    give_back = task_pb2.ReturnRequest(
        worker_id=VICTIM, incarnation=attacked.incarnation, leases=[lease]
    )
    victim.tasks.Return(give_back, timeout=WAIT_S)
    for header in (record_lease, alter(record_lease, incarnation="earlier")):
        push = partial(victim.parameters.push, header, (gradient,), bytearray, WAIT_S)
        if header.incarnation == attacked.incarnation:
            assert push().outcome == parameters_pb2.REFUSED
        else:
            assert code_of(push) == ErrorCode.STALE_INCARNATION
    calls = {
        victim.tasks.Complete: task_pb2.CompleteRequest(lease=lease, minibatches=0),
        victim.tasks.Fail: task_pb2.FailRequest(lease=lease, permanent=True),
    }
    for call, request in calls.items():
        request.worker_id, request.incarnation = VICTIM, attacked.incarnation
        assert code_of(partial(call, request, timeout=WAIT_S)) == ErrorCode.STALE_LEASE
    attacked.finish()


def alter(header: parameters_pb2.PushHeader, **fields: str) -> parameters_pb2.PushHeader:
    copy = parameters_pb2.PushHeader()
    copy.CopyFrom(header)
    copy.MergeFrom(parameters_pb2.PushHeader(**fields))
    return copy


def test_nothing_is_fetched_for_a_worker_that_completes_the_task_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part in a store is fetched before the job decides: its holder may still be writing it."""
    asked: list[HeldLease] = []
    completing = PredictionOutput.completing

    def record_lease(self: PredictionOutput, lease: HeldLease, records: int) -> Any:
        asked.append(lease)
        return completing(self, lease, records)

    monkeypatch.setattr(PredictionOutput, "completing", record_lease)
    spec = complete_spec(
        type=job_pb2.PREDICT,
        data=[write_numbers(tmp_path / "data", (37,))],
        trained_model=str(tmp_path / "model"),
        output=str(tmp_path / "out" / "predictions"),
        records_per_task=10,
        tensorboard_dir=str(tmp_path / "job" / "tensorboard"),
        prediction=job_pb2.PredictionSpec(format="recordio"),
    )
    spec.ClearField("model")
    spec.ClearField("training")
    goes_on, held = threading.Event(), threading.Event()
    victims: list[FakeWorker] = []

    def hold(worker: FakeWorker, minibatch: int) -> None:
        victims.append(worker)
        held.set()
        goes_on.wait(WAIT_S)

    with ExitStack() as opened:
        behavior = WorkerBehavior(0, at_minibatch=hold)
        job = opened.enter_context(RunningJob(spec, tmp_path / "job", behavior))
        opened.callback(goes_on.set)
        assert held.wait(WAIT_S)
        (lease,) = victims[0].held.values()
        done = task_pb2.CompleteRequest(
            worker_id=HOSTILE, incarnation=job.status().incarnation, lease=lease, records=10
        )
        tasks = task_pb2_grpc.TasksStub(job.channel)
        for _ in range(3):
            assert code_of(partial(tasks.Complete, done, timeout=WAIT_S)) == ErrorCode.STALE_LEASE
        assert not asked
        goes_on.set()
        assert job.wait() == 0
        assert len(asked) == 4


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -math.inf, -1.0, 1e300])
def test_seconds_that_a_worker_makes_up_do_not_spoil_the_metric_of_all(seconds: float) -> None:
    step = parameters_pb2.StepReport(loss=math.nan, compute_s=seconds)
    assert push_codec.compute_s_from(step) == 0.0
