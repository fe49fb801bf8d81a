"""Many short random lives of a job, each a function of its seed alone.

    python packages/master/tests/core/schedules.py --runs 100000 [--from SEED] [--seconds S]

plays so many, on all cores; the first that goes wrong is played again and told as a transcript.
``--tell SEED`` tells any of them.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
import traceback
from dataclasses import replace
from random import Random

from replicated_simulation import ReplicatedWorld
from simulation import World

from edl_master.core.effects import JobPhase
from edl_master.core.identifiers import TaskType
from edl_master.core.mixing import Mixing
from edl_master.core.settings import JobSettings, JobType, Timings
from edl_master.core.stall_detector import StallTimeouts
from edl_master.core.view import TaskCounts

# Short, so that a life of some hundred turns sees workers hang and snapshots taken.
TIMINGS = Timings(
    worker_grace_s=10.0,
    stall=StallTimeouts(least_s=3.0, start_s=5.0, first_s=10.0, load_s=6.0, stacks_s=1.0),
)


def world(seed: int) -> World:
    """The world of this seed, before anything has happened."""
    random = Random(seed)
    type_ = random.choice([JobType.TRAIN] * 6 + [JobType.PREDICT, JobType.EVALUATE])
    data = tuple(random.randrange(0, 14) for _ in range(random.randrange(1, 4)))
    data = data if sum(data) else (5,)
    validation = random.choice([(), (), (5,), (2, 0, 4)])
    settings = JobSettings(
        type_,
        num_epochs=random.randrange(1, 3),
        epoch_barrier=random.random() < 0.3,
        shuffle=random.random() < 0.5,
        evaluation_steps=random.choice([0, 0, 3]),
        checkpoint_steps=random.choice([0, 4]),
        snapshot_interval_s=random.choice([0.0, 2.0]),
        records_per_task=random.randrange(1, 8),
        minibatch_size=random.randrange(1, 4),
        min_workers=1,
        max_workers=random.randrange(1, 4),
        export=True,
        export_only=False,
        seed=0,
        allow_dead_letters=False,
        # Under these rules only a defect can fail the job.
        task_attempts=10_000,
        worker_crashes=10_000,
        timings=TIMINGS,
    )
    if settings.shuffle and random.random() < 0.7:
        mixing = Mixing(random.randrange(1, 6), random.randrange(1, 4))
        settings = replace(settings, mixing=mixing)
    storm = random.randrange(0, 260)
    restarts = random.random() < 0.6
    if type_ is JobType.TRAIN and random.random() < 0.2:
        settings = replace(settings, allow_dead_letters=True, task_attempts=2)
    kind = World
    if type_ is JobType.TRAIN and seed % 3 == 0:
        # As an option says, or as the first worker does.
        kind, settings = ReplicatedWorld, replace(settings, replicated=seed % 2 == 0)
    return kind(
        settings,
        data,
        validation if type_ is JobType.TRAIN else (),
        seed,
        storm=storm,
        restarts=restarts,
    )


def play(seed: int, *, told: bool = False) -> World:
    """Play a seed to its end.

    Raises:
        AssertionError: something was lost, repeated, absurd, or did not end.
    """
    played = world(seed)
    if told:
        played.story = []
    try:
        played.run()
        check(played)
    except Exception:
        if played.story is not None:
            print("\n".join(played.story))
        raise
    return played


def check(played: World) -> None:
    """What has to be true at the end."""
    assert played.end is not None
    data, settings = played.data, played.settings
    failure = played.end.failure
    if settings.allow_dead_letters and failure is not None:
        # Dead letters do not cover a task of the whole job, which may run out of its attempts.
        assert failure.where in ("the export", "the evaluation summary"), played.end
        assert played.plane.trained.total() == len(played.plane.trained)
        return
    assert played.end.phase is JobPhase.SUCCEEDED, played.end
    for event in played.late:
        played.job.handle(event, played.now)
    view = played.job.view(played.now)
    match settings.type:
        case JobType.TRAIN if settings.allow_dead_letters:
            assert played.plane.trained.total() == len(played.plane.trained)
            assert view.records_trained == len(played.plane.trained)
        case JobType.TRAIN:
            wanted = {
                (epoch, file, record): 1
                for epoch in range(settings.num_epochs)
                for file, records in enumerate(data)
                for record in range(records)
            }
            assert played.plane.trained == wanted
            assert played.plane.counts == {}
            assert view.records_trained == sum(data) * settings.num_epochs
            # What a restart has undone and done again is counted once.
            scored = view.tasks.get(TaskType.EVALUATION, TaskCounts()).done
            tasks = sum(-(-n // settings.records_per_task) for n in played.validation)
            assert scored == tasks * played.job._components.evaluations.ended
        case JobType.PREDICT:
            assert view.predictions == sum(data)
        case JobType.EVALUATE:
            assert set(played.scored) == {float(sum(data))}


def _fault(seed: int) -> tuple[int, str] | None:
    try:
        play(seed)
    except Exception:
        return seed, traceback.format_exc()
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--from", dest="first", type=int, default=0, metavar="SEED")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--tell", type=int, metavar="SEED", help="play one, and print what happens")
    chosen = parser.parse_args()
    if chosen.tell is not None:
        played = play(chosen.tell, told=True)
        print("\n".join(played.story or ()))
        return 0
    began = time.monotonic()
    seeds = range(chosen.first, chosen.first + chosen.runs)
    done = 0
    with multiprocessing.Pool(os.cpu_count()) as pool:
        for fault in pool.imap_unordered(_fault, seeds, chunksize=50):
            if fault is not None:
                pool.terminate()
                seed, told = fault
                print(f"seed {seed} goes wrong:\n{told}\nThe transcript:", flush=True)
                try:
                    play(seed, told=True)
                except Exception as error:
                    print(f"{type(error).__name__}: {error}")
                return 1
            done += 1
            if time.monotonic() - began > chosen.seconds:
                pool.terminate()
                break
    print(f"{done} schedules from seed {chosen.first} on: nothing lost, repeated or absurd")
    return 0


if __name__ == "__main__":
    sys.exit(main())
