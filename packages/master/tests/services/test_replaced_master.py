"""A replicated job whose master is replaced: over gRPC, with a worker that the test plays."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.jobs import DEADLINE_S, RunningJob, training_spec

from edl_master.config import job_config
from edl_master.core.settings import timings_for
from edl_proto.v1 import job_pb2, task_pb2
from edl_proto.v1 import replicas_pb2 as pb
from edl_proto.v1.replicas_pb2_grpc import ReplicasStub
from edl_testing.fake_session import CALL_S, FakeSession, WorkerInstance, ref
from edl_testing.fake_worker import WorkerBehavior

WEIGHTS, MINIBATCH = 106, 4


class Idle(WorkerBehavior):
    """Instances that do nothing: the test speaks for them."""

    def __init__(self) -> None:
        super().__init__(WEIGHTS)
        self.instances: queue.Queue[WorkerInstance] = queue.Queue()

    def life(self, address: Callable[[], str]) -> Callable[[Any], int]:
        def live(instance: WorkerInstance) -> int:
            self.instances.put(instance)
            while not instance.asked.wait(0.05):
                instance.check()
            return 0

        return live


class Member(FakeSession):
    """The only worker of a job."""

    def __init__(self, job: RunningJob, behavior: Idle) -> None:
        instance = behavior.instances.get(timeout=DEADLINE_S)
        super().__init__(instance, job.app.address, WEIGHTS, behavior.optimizer, lambda: None)
        self.replicas = ReplicasStub(self.channel)
        self.join()

    def ask_generation(self, **said: Any) -> pb.JoinReply:
        request = pb.JoinRequest(
            worker_id=self.id,
            instance=self.instance.name,
            incarnation=self.incarnation,
            layout_fingerprint=self.fingerprint,
            wait_s=CALL_S / 2,
            **said,
        )
        return self.call(self.replicas.Join, request)

    def report_steps(
        self, generation: int, steps: list[pb.ReplicaStep], *, stopped: bool = False
    ) -> pb.ReportReply:
        request = pb.ReportRequest(
            worker_id=self.id,
            incarnation=self.incarnation,
            generation=generation,
            version=len(steps),
            steps=steps,
            stopped=stopped,
        )
        return self.call(self.replicas.Report, request)

    def lease(self, generation: int) -> task_pb2.Lease:
        """Return the next task; meanwhile the generation may end, so that values are saved."""
        while not (reply := self.ask()).HasField("lease"):
            if self.report_steps(generation, []).ended:
                self.report_steps(generation, [], stopped=True)
                generation = self.ask_generation(after=generation).generation.number
        return reply.lease


def make_steps(lease: task_pb2.Lease, count: int) -> list[pb.ReplicaStep]:
    """Return the first steps of a job, with a minibatch of the task each."""
    claims = [
        pb.ReplicaClaim(lease=ref(lease), minibatch=i, minibatches=1, records=MINIBATCH, loss=0.5)
        for i in range(count)
    ]
    return [
        pb.ReplicaStep(version=i + 1, claims=[pb.MemberClaim(worker_id=0, claim=claim)])
        for i, claim in enumerate(claims)
    ]


@pytest.fixture(autouse=True)
def no_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers and leases live without them, however slow the machine is."""
    usual = timings_for(1, 20.0, DEADLINE_S)
    timings = replace(usual, heartbeat_loss_s=DEADLINE_S, lease_ttl_s=DEADLINE_S)
    monkeypatch.setattr(job_config, "timings_for", lambda *_: timings)


def test_the_next_master_counts_what_a_worker_tells_it(tmp_path: Path) -> None:
    spec, job_dir, behavior = training_spec(tmp_path), tmp_path / "job", Idle()
    spec.training.update = job_pb2.REPLICATED
    spec.workers.max, spec.snapshot_interval_s = 1, 600
    with RunningJob(spec, job_dir, behavior) as job, Member(job, behavior) as member:
        begun = member.ask_generation().generation
        initial = pb.VersionOrigin(incarnation=member.incarnation, number=0)
        assert begun.origin == initial
        deadline = time.monotonic() + DEADLINE_S
        while not (reply := member.report_steps(begun.number, [])).HasField("saved"):
            assert time.monotonic() < deadline, "there is no snapshot"
            time.sleep(0.02)
        assert reply.saved == 0
        lease = member.lease(begun.number)
        steps = make_steps(lease, 2)
        assert member.report_steps(begun.number, steps).counted == 2
        made = pb.VersionOrigin(incarnation=member.incarnation, number=begun.number)

    spans = [pb.OriginSpan(version=0, origin=initial), pb.OriginSpan(version=1, origin=made)]
    holding = pb.Holding(version=2, origins=spans)
    with RunningJob(spec, job_dir, behavior) as job, Member(job, behavior) as member:
        asked = member.ask_generation(holding=holding)
        assert (asked.HasField("steps_after"), asked.steps_after) == (True, 0)
        begun = member.ask_generation(holding=holding, steps=steps).generation
        assert (begun.version, list(begun.sources), begun.origin) == (2, [0], made)
        again = member.lease(begun.number)
        assert (again.task, again.skip_minibatches) == (lease.task, 2)
        status = job.status()
        assert (status.records_trained, status.records_replayed) == (2 * MINIBATCH, 0)
