"""The replica group of a fake master: as the real one, but without leaving out any report."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Protocol

from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import replicas_pb2 as pb
from edl_proto.v1 import replicas_pb2_grpc, task_pb2

WAIT_S = 0.3
"""How long a call of Join waits."""


class ReplicaTasks(Protocol):
    """The tasks of a job, under the lock ``changed``."""

    changed: threading.Condition
    incarnation: str
    workers_wanted: int
    next_token: int
    received: Any
    lost_workers: set[int]

    def all_tasks(self) -> Iterator[Any]:
        """Return all tasks."""


class FakeReplicas(replicas_pb2_grpc.ReplicasServicer):
    """The members of one job; a test may end generations, and lose members.

    Args:
        tasks: whose lock protects everything here.

    Attributes:
        generations: all so far.
        counted: version of the last step that counts.
        stored: version of the values that the master has.
        steps: that count, in order.
        next: options of the next generation: ``save``, ``finish``, ``learning_rate``.
        joining: workers that wait for the next generation, in order.
        saving: member that was asked for its values when it left.
        inherits: the first generation begins with what its members have from another master.
    """

    def __init__(self, tasks: ReplicaTasks) -> None:
        self._tasks = tasks
        self._addresses: dict[int, str] = {}
        self.generations: list[pb.Generation] = []
        self.counted = self.stored = 0
        self.steps: list[pb.ReplicaStep] = []
        self.next: dict[str, Any] = {}
        self.saving: int | None = None
        self.is_ending = self.inherits = False
        self._holdings: dict[int, pb.Holding] = {}
        self._reached: dict[int, int | None] = {}
        self._stopped: set[int] = set()
        self._complete: set[int] = set()
        self._leaving: set[int] = set()
        self.joining: list[int] = []
        self._gone: list[int] = []
        self._open: dict[int, dict[int, pb.MemberClaim]] = {}
        self._positions: dict[int, list[pb.LeasePosition]] = {}

    def is_undecided(self, worker: int) -> bool:
        """Whether steps may still count that a worker who is gone was part of."""
        return worker in self._gone or self.inherits

    # --- what a test or the master does, with the lock held --------------------------------

    def end(self, **options: Any) -> None:
        """End the generation; the next one has these options."""
        self.next.update(options)
        self.is_ending = True
        self._continue()

    def lose(self, worker: int) -> None:
        """Go on without a member, which gets no lease until it joins again."""
        self._tasks.lost_workers.add(worker)
        if worker not in self._reached:
            if worker in self.joining:
                self.joining.remove(worker)
            if worker not in self._gone:
                self._release(worker)
            return
        del self._reached[worker]
        self._gone.append(worker)
        for task in self._tasks.all_tasks():
            if task.worker == worker:
                task.token = 0  # nothing can be done with it any more, but steps may still count
        self._stopped.discard(worker)
        self.end()

    def leave(self, worker: int) -> None:
        """Have a member leave."""
        if worker in self._reached:
            self._leaving.add(worker)
            self.end()

    def on_stored(self, version: int) -> None:
        """Record that the master has the values of a version."""
        self.stored, self.saving = version, None
        self._continue()

    # --- the service -----------------------------------------------------------------------

    def Join(self, request: pb.JoinRequest, context: Any) -> pb.JoinReply:
        with self._tasks.changed:
            self._check(request.incarnation)
            worker = request.worker_id
            self._addresses[worker] = request.address
            self._tasks.lost_workers.discard(worker)
            if self._has_left(worker):
                return pb.JoinReply(left=True)
            if worker not in self._reached and worker not in self.joining:
                self.joining.append(worker)
                self._holdings[worker] = request.holding
                if not self.inherits:
                    self.end()
            if self.inherits and len(self.joining) == self._tasks.workers_wanted:
                if self._farthest == worker and not request.steps:
                    return pb.JoinReply(steps_after=self.counted)
                if self._farthest == worker:
                    self._inherit(request)
            self._tasks.changed.wait_for(
                lambda: self._newer(request) or self.saving == worker or self._has_left(worker),
                WAIT_S,
            )
            self._check(request.incarnation)
            if self._has_left(worker):
                return pb.JoinReply(left=True)
            if not self._newer(request):
                return pb.JoinReply(save=self.saving == worker)
            generation = pb.Generation()
            generation.CopyFrom(self.generations[-1])
            generation.leases.extend(self._positions[worker])
            return pb.JoinReply(generation=generation)

    def Report(self, request: pb.ReportRequest, context: Any) -> pb.ReportReply:
        with self._tasks.changed:
            self._check(request.incarnation)
            worker, present = request.worker_id, self.generations[-1:]
            if worker not in self._reached:
                return pb.ReportReply(counted=self.counted, lost=True)
            if not present or request.generation != present[0].number:
                return pb.ReportReply(counted=self.counted, ended=True)
            if request.HasField("version"):
                first = request.version - len(request.steps) + 1
                assert [s.version for s in request.steps] == list(range(first, request.version + 1))
                self._reached[worker] = request.version
                for step in request.steps:
                    if step.version > self.counted:
                        claims = self._open.setdefault(step.version, {})
                        claims.update((each.worker_id, each) for each in step.claims)
            if request.stopped:
                self._stopped.add(worker)
            if request.complete:
                self._complete.add(worker)
            self._count()
            is_leaving = bool(self._leaving & set(self._reached))
            if is_leaving and not self.is_ending and None not in self._reached.values():
                self.end()  # others have the values of those that leave
            self._continue()
            self._tasks.changed.notify_all()
            asks = self.is_ending and worker in self._stopped and self._lacks_claims()
            return pb.ReportReply(counted=self.counted, ended=self.is_ending, all_wanted=asks)

    # --- inside ----------------------------------------------------------------------------

    def _check(self, incarnation: str) -> None:
        if incarnation != self._tasks.incarnation:
            raise EdlError(ErrorCode.STALE_INCARNATION, "the master was replaced")

    @property
    def _farthest(self) -> int:
        return max(self.joining, key=lambda worker: self._holdings[worker].version)

    def _inherit(self, request: pb.JoinRequest) -> None:
        """Count what workers have trained since the snapshot, and begin with those that have it."""
        for step in request.steps:
            self.counted += 1
            assert step.version == self.counted
            self.steps.append(step)
            for claim in (each.claim for each in step.claims):
                (task,) = [t for t in self._tasks.all_tasks() if t.lease.task == claim.lease.task]
                assert task.applied == claim.minibatch, f"not in order: {claim}"
                task.applied += 1
                self._tasks.received.counted.append((claim.lease.task.number, claim.minibatch))
        mine = self._holdings[request.worker_id]
        assert mine.version == self.counted
        for worker in list(self.joining):
            held = self._holdings[worker]
            if held.version == mine.version and held.origins[-1:] == mine.origins[-1:]:
                self.joining.remove(worker)
                self._reached[worker] = self.counted
                self._stopped.add(worker)
        self.inherits = False
        self._continue()

    def _newer(self, request: pb.JoinRequest) -> bool:
        present = self.generations[-1:]
        return bool(
            present
            and present[0].number > request.after
            and request.worker_id in present[0].members
            and request.worker_id in self._reached
        )

    def _has_left(self, worker: int) -> bool:
        return worker in self._leaving and worker not in self._reached

    def _count(self) -> None:
        versions = [v for v in self._reached.values() if v is not None]
        if self.is_ending:
            if self._stopped != set(self._reached) or self._lacks_claims():
                return
        elif len(versions) < len(self._reached):
            return
        while versions and self.counted < min(versions):
            self.counted += 1
            claims = self._open.pop(self.counted)
            step = pb.ReplicaStep(version=self.counted, claims=[claims[w] for w in sorted(claims)])
            self.steps.append(step)
            for each in step.claims:
                self._count_minibatch(each.worker_id, each.claim)
        begun_at = self.generations[-1].version if self.generations else 0
        if self.counted >= begun_at and not self.is_ending:
            self._release_gone()

    def _lacks_claims(self) -> bool:
        """Whether a member that is gone, or lacks the last step, may have added to one."""
        farthest = max((v for v in self._reached.values() if v is not None), default=0)
        if not self.generations or farthest <= max(self.generations[-1].version, self.counted):
            return False
        if all(self._reached.get(worker) == farthest for worker in self.generations[-1].members):
            return False
        return all(self._reached.get(worker) != farthest for worker in self._complete)

    def _release_gone(self) -> None:
        for worker in self._gone:
            self._release(worker)
        self._gone.clear()

    def _continue(self) -> None:
        if (self.generations and not self.is_ending) or self._stopped != set(self._reached):
            return
        arrived = len(self.joining) + len(self._reached)
        if not self.generations and arrived < self._tasks.workers_wanted:
            return
        if self._lacks_claims():
            return
        have = [v for v in self._reached.values() if v is not None]
        version = max(have, default=self.counted)
        assert have or self.stored == self.counted, "all values are gone"
        self._open = {made: step for made, step in self._open.items() if made <= version}
        self._count()
        holders = [w for w, reached in self._reached.items() if reached == version]
        staying = [w for w in self._reached if w not in self._leaving]
        if holders == list(self._reached) and not staying and not self.joining:
            if holders and self.stored < version:
                self.saving = holders[0]
                self._tasks.changed.notify_all()
                return
        elif holders and not set(holders) & set(staying):
            staying = list(self._reached)
        ranked = sorted(staying, key=lambda worker: worker not in holders)
        members = [*ranked, *self.joining]
        self._gone += [worker for worker in self._reached if worker not in staying]
        self._reached = {worker: self._reached.get(worker) for worker in members}
        self.joining, self._stopped, self._complete = [], set(), set()
        self.is_ending = False
        if members:
            self.generations.append(
                pb.Generation(
                    number=len(self.generations) + 1,
                    members=members,
                    version=version,
                    sources=[worker for worker in ranked if worker in holders],
                    next_token=self._tasks.next_token,
                    addresses=[self._addresses[worker] for worker in members],
                    **self.next,
                )
            )
            self.next = {}
            self._positions = {worker: self._find_positions(worker) for worker in members}
        self._count()
        self._tasks.changed.notify_all()

    def _count_minibatch(self, worker: int, claim: pb.ReplicaClaim) -> None:
        (task,) = [one for one in self._tasks.all_tasks() if one.lease.task == claim.lease.task]
        due = (task.worker, task.granted, task.applied)
        assert due == (worker, claim.lease.token, claim.minibatch), f"not in order: {claim}"
        task.applied += 1
        if task.complete is not None and task.complete.minibatches == task.applied:
            task.done, task.token = True, 0
        self._tasks.received.counted.append((claim.lease.task.number, claim.minibatch))

    def _release(self, worker: int) -> None:
        """Return the leases of a worker to the queue, but for those that it has got since then."""
        present = worker in self._reached
        for task in self._tasks.all_tasks():
            if task.worker == worker and not task.done and not (present and task.token):
                task.token, task.granted, task.complete = 0, 0, None
        self._tasks.changed.notify_all()

    def _find_positions(self, worker: int) -> list[pb.LeasePosition]:
        """Return the leases of a worker, and how many minibatches of each are in the values."""
        held = [one for one in self._tasks.all_tasks() if one.token and one.worker == worker]
        counts = {one.token: one.applied for one in held}
        for step in self._open.values():
            for claim in (each.claim for each in step.values()):
                if claim.lease.token in counts:
                    counts[claim.lease.token] = claim.minibatch + 1
        return [
            pb.LeasePosition(
                lease=task_pb2.LeaseRef(task=one.lease.task, token=one.token),
                minibatches=counts[one.token],
            )
            for one in held
        ]
