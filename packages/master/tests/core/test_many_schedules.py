"""A bounded number of random schedules; ``./dev simulate`` plays as many as there is time for."""

from __future__ import annotations

import os
from collections import Counter

from schedules import play

RUNS = int(os.environ.get("EDL_SIMULATIONS", "200"))


def test_random_schedules_lose_repeat_and_garble_nothing() -> None:
    happened: Counter[str] = Counter()
    for seed in range(RUNS):
        try:
            happened += play(seed).happened
        except Exception as error:
            how = f"python packages/master/tests/core/schedules.py --tell {seed}"
            raise AssertionError(f"seed {seed} goes wrong; {how} tells how") from error
    # The schedules are worth something only if these things happen in them.
    for what in ("WorkerLost", "WorkerRecovered", "WorkerStalled", "WorkerStacks", "LeaseExpired"):
        assert happened[what], f"no {what} in {RUNS} schedules"
    for what in (
        "InstanceFound",
        "WriteSnapshot",
        "WriteCheckpoint",
        "ScaleRequested",
        "TaskFailed",
        "TaskDeadLettered",
    ):
        assert happened[what], f"no {what} in {RUNS} schedules"


def test_a_seed_is_always_the_same_schedule() -> None:
    assert play(7).happened == play(7).happened
