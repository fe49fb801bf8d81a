"""Whatever happens to workers, messages and the master: nothing lost, nothing repeated, an end."""

from __future__ import annotations

from fakes.job_settings import job_settings
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation import World

from edl_master.core.effects import JobPhase
from edl_master.core.identifiers import TaskType
from edl_master.core.mixing import Mixing
from edl_master.core.settings import JobSettings, JobType

seeds = st.integers(0, 2**32 - 1)
files = st.lists(st.integers(0, 40), min_size=1, max_size=4).map(tuple).filter(sum)
a_few = settings(max_examples=80, deadline=None)


def rules(type_: JobType, **options: object) -> JobSettings:
    """WorkerCountRules under which only a defect of the state machine can fail the job."""
    return job_settings(type_, task_attempts=10_000, worker_crashes=10_000, **options)


@a_few
@given(
    seed=seeds,
    data=files,
    validation=st.sampled_from([(), (7,), (3, 0, 9)]),
    epochs=st.integers(1, 3),
    barrier=st.booleans(),
    shuffle=st.booleans(),
    mixing=st.none() | st.builds(Mixing, st.integers(1, 6), st.integers(1, 4)),
    evaluation_steps=st.sampled_from([0, 0, 3, 7]),
    records_per_task=st.integers(1, 12),
    minibatch_size=st.integers(1, 5),
    workers=st.integers(1, 4),
    storm=st.integers(0, 1500),
    restarts=st.booleans(),
)
def test_every_record_trains_exactly_once_per_epoch(
    seed: int,
    data: tuple[int, ...],
    validation: tuple[int, ...],
    epochs: int,
    barrier: bool,
    shuffle: bool,
    mixing: Mixing | None,
    evaluation_steps: int,
    records_per_task: int,
    minibatch_size: int,
    workers: int,
    storm: int,
    restarts: bool,
) -> None:
    job = rules(
        JobType.TRAIN,
        num_epochs=epochs,
        epoch_barrier=barrier,
        shuffle=shuffle,
        mixing=mixing if shuffle else None,
        evaluation_steps=evaluation_steps,
        records_per_task=records_per_task,
        minibatch_size=minibatch_size,
        checkpoint_steps=5,
        max_workers=workers,
    )
    world = World(job, data, validation, seed, storm=storm, restarts=restarts)
    world.run()
    assert world.end is not None
    assert world.end.phase is JobPhase.SUCCEEDED, world.end
    wanted = {
        (epoch, file, record): 1
        for epoch in range(epochs)
        for file, records in enumerate(data)
        for record in range(records)
    }
    assert world.plane.trained == wanted
    assert world.plane.counts == {}
    assert world.plane.frozen == {}
    view = world.job.view(world.now)
    assert view.records_trained == view.progress.records_done == sum(data) * epochs
    assert all(count == sum(validation) for count in world.scored)
    assert bool(world.scored) == bool(sum(validation))
    assert view.tasks[TaskType.TRAINING].done == len(world.plane.closed)
    assert world.most_open <= 40, "the open set grows with something else than the workers"


@a_few
@given(seed=seeds, data=files, storm=st.integers(0, 800), restarts=st.booleans())
def test_every_record_is_predicted_exactly_once(
    seed: int, data: tuple[int, ...], storm: int, restarts: bool
) -> None:
    job = rules(JobType.PREDICT, records_per_task=5, max_workers=3)
    world = World(job, data, (), seed, storm=storm, restarts=restarts)
    world.run()
    assert world.end is not None
    assert world.end.phase is JobPhase.SUCCEEDED, world.end
    assert world.job.view(world.now).predictions == sum(data)


@a_few
@given(seed=seeds, data=files, storm=st.integers(0, 800), restarts=st.booleans())
def test_every_record_is_evaluated_exactly_once(
    seed: int, data: tuple[int, ...], storm: int, restarts: bool
) -> None:
    job = rules(JobType.EVALUATE, records_per_task=5, max_workers=3)
    world = World(job, data, (), seed, storm=storm, restarts=restarts)
    world.run()
    assert world.end is not None
    assert world.end.phase is JobPhase.SUCCEEDED, world.end
    assert set(world.scored) == {float(sum(data))}
    assert world.job.view(world.now).metrics == {"seen": float(sum(data))}
