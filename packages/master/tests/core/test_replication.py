"""A job whose workers train in step: what the rest of the job waits for."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import pytest
from fakes.job_settings import job_settings

from edl_master.core import effects as fx
from edl_master.core import events as ev
from edl_master.core.failure import Failure
from edl_master.core.identifiers import HeldLease, InstanceId, Version, WorkerId
from edl_master.core.job import JobStateMachine
from edl_master.core.replica_events import (
    CountReplicaStep,
    GenerationBegun,
    GenerationRequested,
    GroupLeft,
    ReplicaClaim,
    ReplicaStep,
    RollBack,
    StepsCounted,
    StepsReported,
    StoreValues,
    ValuesAccepted,
    ValuesRequested,
    ValuesSent,
)
from edl_master.core.settings import JobType

SETTINGS = job_settings(
    JobType.TRAIN,
    records_per_task=4,
    minibatch_size=2,
    shuffle=False,
    replicated=True,
    snapshot_interval_s=5.0,
)
A, B = WorkerId(0), WorkerId(1)
Kind = TypeVar("Kind")


def instance(worker: WorkerId) -> InstanceId:
    return InstanceId(f"instance-{worker}")


class Job:
    """A replicated job of two tasks, with its workers in one generation."""

    def __init__(self, *workers: WorkerId) -> None:
        self.now = 0.0
        self.job = JobStateMachine(replace(SETTINGS, max_workers=len(workers)), (8,))
        self.tell(ev.Tick())
        for worker in workers:
            self.tell(ev.WorkerRegistered(worker, instance(worker), "host", 1))
            self.tell(ev.WorkerReady(worker, instance(worker)))
            self.join(worker)
        for worker in workers[:-1]:
            self.report(worker, 1, None, stopped=True)
        self.number = 1
        for worker in workers:
            begun = self.get(GenerationBegun, self.join(worker))
            self.number = begun.generation.number
        for worker in workers:
            self.report(worker, self.number, 0)

    def tell(self, event: ev.Event) -> list[fx.Effect]:
        self.now += 0.01
        return self.job.handle(event, self.now)

    @staticmethod
    def get(kind: type[Kind], effects: list[fx.Effect]) -> Kind:
        """The one effect of a kind."""
        (found,) = [effect for effect in effects if isinstance(effect, kind)]
        return found

    def join(self, worker: WorkerId, after: int = 0) -> list[fx.Effect]:
        return self.tell(GenerationRequested(worker, instance(worker), after))

    def report(
        self,
        worker: WorkerId,
        generation: int,
        version: int | None,
        *steps: ReplicaStep,
        stopped: bool = False,
        complete: bool = False,
    ) -> list[fx.Effect]:
        made = None if version is None else Version(version)
        return self.tell(StepsReported(worker, generation, made, steps, stopped, complete=complete))

    def lease(self, worker: WorkerId) -> fx.LeaseGranted:
        asked = ev.LeaseRequested(worker, instance(worker))
        return self.get(fx.LeaseGranted, self.tell(asked))

    def complete(self, lease: fx.LeaseGranted) -> list[fx.Effect]:
        held = HeldLease(lease.task, lease.token)
        return self.tell(ev.TaskCompleted(lease.worker, held, 2, 0, 4, 0))

    def train_all(self) -> None:
        """Let one worker train both tasks, so that the epoch ends."""
        first, second = self.lease(A), self.lease(A)
        steps = [claim(first, 0), claim(first, 1), claim(second, 0), claim(second, 1)]
        self.report(A, self.number, 4, *steps)
        self.complete(first)
        self.complete(second)


def claim(lease: fx.LeaseGranted, minibatch: int) -> ReplicaStep:
    held = HeldLease(lease.task, lease.token)
    return (ReplicaClaim(lease.worker, held, minibatch, 1, 2, 0.5),)


def test_a_task_is_complete_once_its_minibatches_count() -> None:
    job = Job(A)
    lease = job.lease(A)

    effects = job.complete(lease)
    assert not effects, "the answer comes at once, and nothing is decided"
    effects = job.report(A, job.number, 2, claim(lease, 0), claim(lease, 1))

    kinds = [type(effect) for effect in effects]
    assert kinds.count(CountReplicaStep) == 2
    assert fx.CloseTask(lease.task) in effects
    assert job.job.view(job.now).records_trained == 4


def test_examples_are_counted_that_the_input_function_has_made() -> None:
    """There may be more than records."""
    job = Job(A)
    lease = job.lease(A)
    held = HeldLease(lease.task, lease.token)
    steps = [(ReplicaClaim(A, held, minibatch, 1, 6, 0.5),) for minibatch in range(2)]

    job.report(A, job.number, 2, *steps)
    job.complete(lease)

    view = job.job.view(job.now)
    assert (view.examples, view.examples_of, view.records_trained) == (12, 4, 4)


def test_a_task_whose_holder_is_gone_is_leased_when_its_steps_are_decided() -> None:
    job = Job(A, B)
    first, second = job.lease(A), job.lease(B)
    step = (*claim(first, 0), *claim(second, 0))
    job.tell(ev.InstanceExited(B, instance(B), None, 9, preempted=False))

    # A has the step in which B died; B's minibatch is in the values of A.
    asked = ev.LeaseRequested(A, instance(A))
    assert isinstance(job.tell(asked)[0], fx.WaitForWork)
    effects = job.report(A, job.number, 1, claim(first, 0), stopped=True)
    assert job.get(StepsCounted, effects).all_wanted
    effects = job.report(A, job.number, 1, step, stopped=True, complete=True)
    assert job.get(CountReplicaStep, effects).claims == step
    assert job.lease(A).task == second.task


def test_a_generation_says_which_minibatches_its_values_have() -> None:
    job = Job(A, B)
    first, second = job.lease(A), job.lease(B)
    step = (*claim(first, 0), *claim(second, 0))
    job.report(A, job.number, 1, step)
    job.tell(ev.LearningRateRequested(0.5))
    job.report(B, job.number, 0, stopped=True)  # it has not seen the end of the step
    job.report(A, job.number, 1, step, stopped=True, complete=True)

    begun = job.get(GenerationBegun, job.join(B, after=job.number))
    assert begun.generation.sources == (A,)
    assert begun.leases == ((HeldLease(second.task, second.token), 1),)
    assert begun.next_token == second.token + 1
    assert begun.learning_rate == 0.5


def test_a_lease_that_was_taken_back_is_void_in_the_next_generation() -> None:
    job = Job(A)
    lease = job.lease(A)
    failure = Failure("USER_CODE", "boom")
    held = HeldLease(lease.task, lease.token)
    job.tell(ev.TaskFailed(A, held, failure, permanent=False))

    effects = job.report(A, job.number, 1, claim(lease, 0), stopped=True)
    assert job.get(CountReplicaStep, effects).claims == claim(lease, 0)
    assert job.get(GenerationBegun, job.join(A, after=job.number)).leases == ()


def test_values_are_frozen_once_the_store_has_them() -> None:
    job = Job(A)
    job.train_all()

    effects = job.report(A, job.number, 4, stopped=True)
    assert not [e for e in effects if isinstance(e, fx.WriteSnapshot | fx.FreezeParameters)]
    begun = job.get(GenerationBegun, job.join(A, after=job.number))
    assert begun.generation.saves
    assert begun.generation.finishes
    effects = job.tell(ValuesSent(A, Version(4)))
    kinds = [type(effect) for effect in effects]
    stored = kinds.index(StoreValues)
    assert kinds.index(ValuesAccepted) < stored < kinds.index(fx.WriteSnapshot)
    assert stored < kinds.index(fx.FreezeParameters)


def test_a_snapshot_is_of_what_counts_when_its_values_were_made() -> None:
    job = Job(A)
    lease = job.lease(A)
    job.report(A, job.number, 1, claim(lease, 0))
    job.now += 6.0
    assert not [e for e in job.tell(ev.Tick()) if isinstance(e, fx.WriteSnapshot)]
    job.report(A, job.number, 1, stopped=True)
    number = job.get(GenerationBegun, job.join(A, after=job.number)).generation.number
    assert not [
        e
        for e in job.report(A, number, 2, claim(lease, 0), claim(lease, 1))
        if isinstance(e, CountReplicaStep)
    ]

    effects = job.tell(ValuesSent(A, Version(1)))
    assert fx.WriteSnapshot() in effects
    assert job.job.snapshot()["progress"]["version"] == 1
    assert job.get(CountReplicaStep, job.tell(ev.Tick())).version == 2


def test_the_last_worker_sends_its_values_before_it_leaves() -> None:
    job = Job(A)
    lease = job.lease(A)
    job.report(A, job.number, 1, claim(lease, 0))
    held = HeldLease(lease.task, lease.token)
    job.tell(ev.LeasesReturned(A, (held,), "terminated", leaving=True))
    job.report(A, job.number, 1, stopped=True)

    assert job.join(A, after=job.number) == [ValuesRequested()]
    effects = job.tell(ValuesSent(A, Version(1)))
    assert StoreValues(A, Version(1)) in effects
    assert job.join(A, after=job.number) == [GroupLeft()]


def test_values_that_are_gone_end_this_master() -> None:
    job = Job(A)
    lease = job.lease(A)
    job.report(A, job.number, 1, claim(lease, 0))

    effects = job.tell(ev.InstanceExited(A, instance(A), None, 9, preempted=False))
    assert RollBack() in effects


def test_a_job_that_fails_keeps_no_ledger_without_its_values() -> None:
    job = Job(A)
    lease = job.lease(A)
    job.report(A, job.number, 1, claim(lease, 0))
    job.tell(ev.MasterFailed(Failure("DISK_FULL", "no space")))

    effects = job.tell(ev.InstanceExited(A, instance(A), None, 9, preempted=False))
    assert [e for e in effects if isinstance(e, fx.EndJob)]
    assert not [e for e in effects if isinstance(e, fx.WriteSnapshot)]


def test_the_last_report_of_a_generation_may_be_repeated() -> None:
    job = Job(A)
    job.tell(ev.LearningRateRequested(0.5))
    job.report(A, job.number, 0, stopped=True)

    again = job.report(A, job.number, 0, stopped=True)
    assert again == [StepsCounted(Version(0), ended=True, lost=False)]


def test_one_that_was_given_up_is_told_so() -> None:
    job = Job(A, B)
    job.tell(ev.InstanceExited(B, instance(B), None, 9, preempted=False))

    assert job.report(B, job.number, 0) == [StepsCounted(Version(0), ended=True, lost=True)]


def test_one_that_another_worker_cannot_reach_is_stopped() -> None:
    job = Job(A, B)
    stop = StepsReported(A, job.number, Version(0), (), True, B, "10.0.0.7:7071: timed out")
    job.tell(stop)

    effects = job.report(B, job.number, 0, stopped=True)

    assert fx.StopWorker(B, kill=True) in effects
    messages = [each.message for each in effects if isinstance(each, fx.LogEvent)]
    assert "it and worker 0 cannot exchange gradients (10.0.0.7:7071: timed out)" in messages[0]
    assert job.get(GenerationBegun, job.join(A, after=job.number)).generation.members == (A,)


@pytest.mark.parametrize("request_", [ev.ScaleRequested(1, 1), ev.StopRequested("by a test")])
def test_a_worker_that_was_told_to_leave_leaves_the_group(request_: ev.Event) -> None:
    job = Job(A, B)
    job.tell(request_)
    job.tell(ev.LeasesReturned(B, (), "terminated", leaving=True, instance=instance(B)))
    for worker in (A, B):
        assert job.get(StepsCounted, job.report(worker, job.number, 0, stopped=True)).ended

    assert job.join(B, after=job.number) == [GroupLeft()]


def test_a_worker_that_was_not_told_in_time_that_the_job_is_over_may_leave() -> None:
    job = Job(A)
    job.tell(ev.MasterFailed(Failure("DISK_FULL", "no space")))
    job.tell(ev.InstanceExited(A, instance(A), None, 0, preempted=False))

    assert job.join(A, after=job.number) == [GroupLeft()]


@pytest.mark.parametrize("replicated", [False, True])
def test_the_first_worker_that_is_ready_says_whether_a_job_is_replicated(
    *, replicated: bool
) -> None:
    job = JobStateMachine(replace(SETTINGS, replicated=False), (8,))
    job.handle(ev.Tick(), 0.0)
    job.handle(ev.WorkerRegistered(A, instance(A), "host", 1), 0.1)
    job.handle(ev.LearningRateRequested(0.5, 1), 0.2)
    job.handle(ev.WorkerReady(A, instance(A), replicated=replicated), 0.3)
    begun = Job.get(GenerationBegun, job.handle(GenerationRequested(A, instance(A), 0), 0.4))
    assert begun.learning_rate == 0.5, "it was set before that was known"
    asked = ev.LeaseRequested(A, instance(A))
    lease = Job.get(fx.LeaseGranted, job.handle(asked, 0.5))
    done = ev.TaskCompleted(A, HeldLease(lease.task, lease.token), 2, 0, 4, 0)
    refused = [each for each in job.handle(done, 0.6) if isinstance(each, fx.Refused)]
    assert bool(refused) is not replicated, "its steps may count later if members report them"
