"""The master of 100 and of 1,000 workers that train in step, without their processes.

Simulated members report their steps as often as ``report_interval`` says. What is measured is the
processor time of the master's service: it decodes calls, counts steps and encodes answers. gRPC
itself is left out. Groups make ten steps a second, those of more than 1,000 members one, so that
the simulation ends in time. A new generation follows the death of a member: all others stop and
report the steps that do not count yet, the master counts them, and all join the next one. The bytes
are those that the busiest member exchanges with the master.

``EDL_BENCH_MEMBERS`` names other sizes. Those of 10,000 take long: each member is told all others
in every generation.
"""

from __future__ import annotations

import os
import time
from typing import Any
from unittest import mock

from bench.measure import Measure
from edl_master import codec
from edl_master.adapters.buffer_pool import BufferPool
from edl_master.control.job_controller import GrantedLease, JobController
from edl_master.core import events as ev
from edl_master.core.identifiers import InstanceId, WorkerId
from edl_master.core.job import JobStateMachine
from edl_master.core.parameters.layout import Variable
from edl_master.core.parameters.modes import Replicated
from edl_master.core.settings import JobSettings, JobType, timings_for
from edl_master.parameters.plane import build_local
from edl_master.servicers.replicas import ReplicasServicer
from edl_proto.v1 import replicas_pb2 as pb
from edl_proto.v1 import task_pb2
from edl_worker.training.replica_reporter import report_interval

SIZES = tuple(map(int, os.environ.get("EDL_BENCH_MEMBERS", "100,1000").split(",")))
MINIBATCHES = 64
OPTIMIZER = '{"class_name": "SGD", "config": {"learning_rate": 0.1}}'


class Group:
    """A master's service, and the members that call it.

    Attributes:
        exchanged: bytes of each member's calls and their answers.
        seconds: processor time of the service.
    """

    def __init__(self, size: int) -> None:
        self.members = list(range(size))
        self.exchanged = [0] * size
        self.seconds = 0.0
        self.counted = self.number = 0
        self._context = mock.MagicMock()
        self._claims: list[dict[int, pb.ReplicaClaim]] = []  # of all steps
        self._leases: dict[int, tuple[task_pb2.LeaseRef, int]] = {}  # and the next minibatch
        settings = JobSettings(
            JobType.TRAIN,
            records_per_task=MINIBATCHES,
            minibatch_size=1,
            num_epochs=1,
            task_attempts=3,
            worker_crashes=3,
            max_workers=size,
            min_workers=size,
            export=False,
            export_only=False,
            epoch_barrier=False,
            evaluation_steps=0,
            checkpoint_steps=0,
            snapshot_interval_s=0.0,
            seed=0,
            shuffle=True,
            allow_dead_letters=False,
            timings=timings_for(size, 1e6, 0.0),
            replicated=True,
        )
        parts = build_local(BufferPool(), lambda *_: Replicated())
        variables = (Variable("w", (1,), "float32", trainable=True),)
        self._fingerprint, _ = parts.model.describe(variables, OPTIMIZER, "mean")
        job = JobStateMachine(settings, (MINIBATCHES * size * 4,))
        self._master = JobController(job, parts.coordinator, mock.Mock())
        self._service = ReplicasServicer(
            self._master, parts.coordinator, mock.MagicMock(), incarnation="one"
        )
        self._master.handle(ev.Tick())
        for member in self.members:
            known = WorkerId(member), InstanceId(str(member))
            self._master.handle(ev.WorkerRegistered(*known, "host", 1))
            self._master.handle(ev.WorkerReady(*known))
            self._lease(member)

    @property
    def version(self) -> int:
        """The version that all members have."""
        return len(self._claims)

    def _lease(self, member: int) -> None:
        asked = ev.LeaseRequested(WorkerId(member), InstanceId(str(member)))
        granted = self._master.handle(asked)
        assert isinstance(granted, GrantedLease)
        lease = codec.lease_ref_to(ev.HeldLease(granted.lease.task, granted.lease.token))
        self._leases[member] = lease, 0

    def step(self) -> None:
        """Have all members make a step."""
        claims = {}
        for member in self.members:
            lease, minibatch = self._leases[member]
            claims[member] = pb.ReplicaClaim(
                lease=lease, minibatch=minibatch, minibatches=1, records=1, loss=0.5
            )
            self._leases[member] = lease, minibatch + 1
        self._claims.append(claims)

    def report(
        self, member: int, *, stopped: bool = False, complete: bool = False
    ) -> pb.ReportReply:
        """Have a member report what it has added; or, complete, what all have added."""
        steps = [
            pb.ReplicaStep(
                version=made + 1,
                claims=[
                    pb.MemberClaim(worker_id=worker, claim=self._claims[made][worker])
                    for worker in (self._claims[made] if complete else (member,))
                ],
            )
            for made in range(self.counted, self.version)
        ]
        request = pb.ReportRequest(
            worker_id=member,
            incarnation="one",
            generation=self.number,
            version=self.version,
            steps=steps,
            stopped=stopped,
            complete=complete,
        )
        reply: pb.ReportReply = self._call(member, self._service.Report, request)
        self.counted = reply.counted
        return reply

    def join(self, member: int) -> pb.JoinReply:
        """Ask for the next generation for a member."""
        request = pb.JoinRequest(
            worker_id=member,
            instance=str(member),
            incarnation="one",
            layout_fingerprint=self._fingerprint,
            after=self.number,
            address=f"10.0.{member // 250}.{member % 250}:50000",
        )
        reply: pb.JoinReply = self._call(member, self._service.Join, request)
        return reply

    def begin(self) -> None:
        """Have members that have stopped, or are new, enter the next generation."""
        last = self._join_all()
        if not last.HasField("generation"):  # the first one is in one of its own
            self.number = 1
            self.report(0, stopped=True)
            self.number = 0
            last = self._join_all()
        self.number = last.generation.number
        for member in self.members:
            self.report(member)

    def _join_all(self) -> pb.JoinReply:
        """Have all members ask for the next generation; return the last answer."""
        reply = pb.JoinReply()
        for member in self.members:
            reply = self.join(member)
        return reply

    def kill(self) -> None:
        """Lose the last member, and go on with the others."""
        gone = self.members.pop()
        end = ev.InstanceExited(WorkerId(gone), InstanceId(str(gone)), None, 9, preempted=True)
        self._master.handle(end)
        for member in self.members:
            self.report(member, stopped=True)
        for member in self.members[:1]:  # the master asks the first one that is farthest
            if self.report(member, stopped=True).all_wanted:
                self.report(member, stopped=True, complete=True)
        self.begin()

    def _call(self, member: int, method: Any, request: Any) -> Any:
        content = request.SerializeToString()
        began = time.process_time()
        reply = method(type(request).FromString(content), self._context)
        answer = reply.SerializeToString()
        self.seconds += time.process_time() - began
        self.exchanged[member] += len(content) + len(answer)
        return reply


def measures() -> list[dict[str, Any]]:
    """Processor time, duration and bytes for groups of several sizes."""
    return [measure for size in SIZES for measure in measure_group(size)]


def measure_group(size: int) -> list[dict[str, Any]]:
    """Return what a group of this size costs its master."""
    group = Group(size)
    group.begin()
    rate = 10 if size <= 1000 else 1
    every = max(1, round(report_interval(size) * rate))
    group.seconds, group.exchanged = 0.0, [0] * size
    steps = 2 * every if every > 1 else 10
    for number in range(steps):
        group.step()
        for member in group.members[number % every :: every]:
            group.report(member)
    step_s, step_bytes = group.seconds / steps, max(group.exchanged) / steps * rate
    group.seconds, group.exchanged = 0.0, [0] * size
    group.kill()
    rows = [
        ("steps a second", 1 / step_s, "/s", 10.0, True),
        ("a new generation", group.seconds, "s", 1.0, False),
        ("busiest member, training", step_bytes / 1000, "kB/s", 1000.0, False),
        ("busiest member, new generation", max(group.exchanged) / 1000, "kB", 10_000.0, False),
    ]
    return [
        Measure(
            name=f"{size:,} members: {name}",
            value=value,
            unit=unit,
            peer="limit",
            peer_value=limit,
            ratio=value / limit if more else limit / value,
            target=1.0,
        ).to_json()
        for name, value, unit, limit, more in rows
    ]
