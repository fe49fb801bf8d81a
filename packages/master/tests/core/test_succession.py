"""What a new master of a replicated job continues from."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TypeVar

import pytest
from fakes.job_settings import job_settings

from edl_master.core import effects as fx
from edl_master.core import events as ev
from edl_master.core.generations import Inheritance, VersionOrigin
from edl_master.core.identifiers import (
    HeldLease,
    InstanceId,
    TaskKey,
    TaskType,
    Token,
    Version,
    WorkerId,
)
from edl_master.core.inherited_steps import MAX_UNTOLD
from edl_master.core.interruption import Interruption
from edl_master.core.job import JobStateMachine
from edl_master.core.replica_events import (
    CountReplicaStep,
    GenerationBegun,
    GenerationRequested,
    ReplicaClaim,
    ReplicaStep,
    StepsCounted,
    StepsReported,
    StepsWanted,
)
from edl_master.core.settings import JobSettings, JobType
from edl_master.core.succession import WAIT_S, Holding, Succession

SETTINGS = job_settings(
    JobType.TRAIN,
    records_per_task=4,
    minibatch_size=2,
    num_epochs=2,
    shuffle=False,
    replicated=True,
    max_workers=2,
    incarnation="new",
)
A, B, C, D = map(WorkerId, range(4))
FIRST, SECOND, THIRD = VersionOrigin("old", 1), VersionOrigin("old", 2), VersionOrigin("old", 3)
Kind = TypeVar("Kind")


def holding(version: int, *origins: tuple[int, VersionOrigin]) -> Holding:
    return Holding(Version(version), tuple((Version(first), each) for first, each in origins))


def succession(*workers: WorkerId) -> Succession:
    """Return one from a snapshot of version 5, which generation 2 has made."""
    began = Succession(Version(5), SECOND)
    began.expect(workers)
    return began


# --- the choice ------------------------------------------------------------------------------


def test_the_longest_of_the_latest_generation_is_continued() -> None:
    made = succession(A, B, C, D)
    made.offer(A, holding(9, (3, SECOND)), 0.0)
    made.offer(D, holding(7, (3, SECOND)), 0.0)
    made.offer(B, holding(7, (4, SECOND), (7, THIRD)), 0.0)
    made.offer(C, holding(7, (7, THIRD)), 0.0)

    assert made.choose() == B, "it is of a generation that went on without A"
    assert made.decide() == Inheritance(Version(7), THIRD, (B, C), (A, D)), "C has its values"


@pytest.mark.parametrize(
    "held",
    [
        holding(9, (4, FIRST)),  # another step made version 5
        holding(4, (2, SECOND)),  # the snapshot is further
        holding(9, (6, SECOND)),  # it does not know how version 6 was made
        None,
    ],
)
def test_what_does_not_continue_the_snapshot_is_not_used(held: Holding | None) -> None:
    made = succession(A)
    made.offer(A, held, 0.0)

    assert made.choose() is None
    assert made.decide() == Inheritance(Version(5), SECOND, (), (A,))


def test_workers_that_ran_before_are_waited_for_but_not_for_ever() -> None:
    made = succession(A, B)
    assert not made.has_waited(100.0), "no worker has joined"
    made.offer(A, None, 100.0)
    assert not made.has_waited(100.0)
    assert made.has_waited(100.0 + WAIT_S)
    made.withdraw(B)
    assert made.has_waited(100.0)


def test_workers_are_waited_for_while_it_is_not_known_which_ran_before() -> None:
    made = Succession(Version(5), SECOND)
    made.offer(A, None, 0.0)
    assert not made.has_waited(0.0)


# --- the job ---------------------------------------------------------------------------------


def instance(worker: WorkerId) -> InstanceId:
    return InstanceId(f"instance-{worker}")


class Job:
    """A job of two tasks an epoch, of which only a snapshot of the beginning was left.

    For three seconds after it, six records were trained.

    Args:
        tasks: an epoch has.
        done: tasks that the snapshot has as done, without any minibatches.
    """

    def __init__(
        self,
        *workers: WorkerId,
        settings: JobSettings = SETTINGS,
        wanted: bool = False,
        tasks: int = 2,
        done: int = 0,
    ) -> None:
        data = (tasks * settings.records_per_task,)
        before = JobStateMachine(replace(settings, incarnation="old"), data)
        before.handle(ev.Tick(), 0.0)
        before.handle(ev.WorkerRegistered(A, instance(A), "host", 1), 0.0)
        callbacks = ("EarlyStopping",) if wanted else ()
        before.handle(ev.WorkerReady(A, instance(A), callbacks=callbacks), 0.0)
        for _ in range(done):
            asked = ev.LeaseRequested(A, instance(A))
            granted = get(fx.LeaseGranted, list(before.handle(asked, 0.0)))
            held = HeldLease(granted.task, granted.token)
            before.handle(ev.TaskCompleted(A, held, 0, 0, 4, 0), 0.0)
        self.now = 0.0
        saved = json.loads(json.dumps(before.snapshot()))
        gone = Interruption(undone_s=3.0, records=(6, 0))
        self.job = JobStateMachine.restore(settings, data, (), saved, interruption=gone)
        for worker in workers:
            self.tell(ev.WorkerRegistered(worker, instance(worker), "host", 1))
            self.tell(ev.WorkerReady(worker, instance(worker), callbacks=callbacks))
        self.tell(ev.Tick())

    def tell(self, event: ev.Event) -> list[fx.Effect]:
        self.now += 0.01
        effects = self.job.handle(event, self.now)
        self.job.check_invariants()
        return effects

    def join(self, worker: WorkerId, steps: int = 0, *told: ReplicaStep) -> list[fx.Effect]:
        """Join with so many steps that were made since the snapshot."""
        origins = ((0, VersionOrigin("old", 0)), (1, FIRST))[: 1 + (steps > 0)]
        held = holding(steps, *origins)
        return self.tell(GenerationRequested(worker, instance(worker), 0, held, told))

    def lease(self, worker: WorkerId) -> fx.LeaseGranted:
        return get(fx.LeaseGranted, self.tell(ev.LeaseRequested(worker, instance(worker))))


def get(kind: type[Kind], effects: list[fx.Effect]) -> Kind:
    """The one effect of a kind."""
    (found,) = [effect for effect in effects if isinstance(effect, kind)]
    return found


def step(worker: WorkerId, round_: int, task: int, minibatch: int) -> ReplicaStep:
    held = HeldLease(TaskKey(TaskType.TRAINING, round_, task), Token(9))
    return (ReplicaClaim(worker, held, minibatch, 1, 2, 0.5),)


EPOCH = tuple(step(A, 0, task, minibatch) for task in range(2) for minibatch in range(2))


def test_steps_that_a_worker_holds_count() -> None:
    job = Job(A)
    assert job.join(A, 3) == [StepsWanted(Version(0))]

    effects = job.join(A, 3, *EPOCH[:3])
    counted = [effect for effect in effects if isinstance(effect, CountReplicaStep)]
    assert counted == [CountReplicaStep(Version(i + 1), EPOCH[i], inherited=True) for i in range(3)]
    begun = get(GenerationBegun, effects)
    assert (begun.generation.version, begun.generation.sources) == (3, (A,))
    assert begun.origin == FIRST
    view = job.job.view(job.now)
    assert (view.progress.steps, view.records_trained, view.records_replayed) == (3, 6, 0)
    assert view.progress.lost_s["redone"] == 0.0
    again = [job.lease(A).task.number for _ in range(2)]
    assert again == [0, 1], "whether a task has more minibatches is not known"


def test_the_first_generation_saves_what_is_kept() -> None:
    job = Job(A, settings=replace(SETTINGS, snapshot_interval_s=1.0))
    job.tell(ev.Tick())  # a snapshot is due
    job.join(A, 1)

    begun = get(GenerationBegun, job.join(A, 1, EPOCH[0])).generation
    assert (begun.number, begun.saves) == (1, True)
    reported = job.tell(StepsReported(A, begun.number, begun.version))
    assert not get(StepsCounted, reported).ended


def test_steps_of_the_next_epoch_count() -> None:
    job = Job(A)
    steps = (*EPOCH, step(A, 1, 0, 0))
    job.join(A, 5)

    assert get(GenerationBegun, job.join(A, 5, *steps)).generation.version == 5
    assert job.job.view(job.now).records_trained == 10


@pytest.mark.parametrize(
    "steps",
    [
        (EPOCH[0], EPOCH[0]),
        (EPOCH[1],),
        (step(A, 2, 0, 0),),
        (step(A, 0, 7, 0),),
        (EPOCH[0],) * 3,
    ],
    ids=["twice", "a gap", "no such epoch", "no such task", "too many"],
)
def test_steps_that_cannot_follow_are_refused(steps: tuple[ReplicaStep, ...]) -> None:
    job = Job(A)
    told = len(steps) if len(steps) < 3 else 2
    assert job.join(A, told) == [StepsWanted(Version(0))]

    begun = get(GenerationBegun, job.join(A, told, *steps))
    assert (begun.generation.version, begun.generation.sources) == (0, ())
    view = job.job.view(job.now)
    assert (view.records_trained, view.records_replayed) == (0, 6)
    assert view.progress.lost_s["redone"] > 0.0


def test_steps_of_an_epoch_that_is_over_are_refused() -> None:
    job = Job(A, done=2)
    job.join(A, 1)

    assert get(GenerationBegun, job.join(A, 1, EPOCH[0])).generation.version == 0


def test_steps_of_an_epoch_whose_predecessor_has_not_begun_are_refused() -> None:
    job = Job(A, settings=replace(SETTINGS, num_epochs=9))
    job.join(A, 1)

    assert get(GenerationBegun, job.join(A, 1, step(A, 2, 0, 0))).generation.version == 0


@pytest.mark.parametrize(("task", "version"), [(MAX_UNTOLD, 1), (MAX_UNTOLD + 1, 0)])
def test_a_worker_cannot_have_the_master_open_all_tasks(task: int, version: int) -> None:
    job = Job(A, tasks=2 * MAX_UNTOLD)
    job.join(A, 1)

    begun = get(GenerationBegun, job.join(A, 1, step(A, 0, task, 0)))
    assert begun.generation.version == version


@pytest.mark.parametrize("how", ["callbacks", "barrier"])
def test_an_epoch_that_waits_for_the_one_before_does_not_follow_from_steps(how: str) -> None:
    settings = replace(SETTINGS, epoch_barrier=how == "barrier")
    job = Job(A, settings=settings, wanted=how == "callbacks")
    job.join(A, 5)

    begun = get(GenerationBegun, job.join(A, 5, *EPOCH, step(A, 1, 0, 0)))
    assert begun.generation.version == 0


def test_nothing_is_leased_before_all_have_joined() -> None:
    job = Job(A, B, wanted=True)  # callbacks, which are called before the first epoch
    get(fx.WaitForWork, job.join(A))
    get(fx.WaitForWork, job.tell(ev.LeaseRequested(A, instance(A))))

    begun = get(GenerationBegun, job.join(B))
    assert begun.generation.members == begun.generation.sources == (A, B)
    assert job.lease(A).task.type is TaskType.CALLBACKS


def test_another_worker_is_asked_if_one_does_not_tell_its_steps() -> None:
    job = Job(A, B)
    job.join(A, 2)
    get(fx.WaitForWork, job.join(B, 1))
    get(StepsWanted, job.join(A, 2))
    job.now += 2 * WAIT_S
    job.tell(ev.Tick())

    get(StepsWanted, job.join(B, 1))
    begun = get(GenerationBegun, job.join(B, 1, EPOCH[0]))
    assert (begun.generation.members, begun.generation.sources) == ((B, A), (B,))


def test_a_worker_that_dies_is_not_waited_for() -> None:
    job = Job(A, B)
    job.join(A, 2)
    job.join(B, 1)
    job.tell(ev.InstanceExited(A, instance(A), None, 9, preempted=False))

    get(StepsWanted, job.join(B, 1))
