"""The policy on simulated jobs: it finds the number of workers that is worth having."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from edl_master.core.autoscaling import WorkerCountDecision, WorkerCountPolicy, WorkerCountRules


def simulate(
    throughput: Callable[[int], float],
    minimum: int,
    maximum: int,
    *,
    seconds: int = 7200,
    noise: float = 0.0,
    deaths: float = 0.0,
    seed: int = 0,
) -> tuple[WorkerCountPolicy, list[WorkerCountDecision], list[int]]:
    """Play a job second by second; workers take five seconds to come and one to go."""
    random = Random(seed)
    policy = WorkerCountPolicy(minimum, maximum, WorkerCountRules())
    arrivals: list[int] = []
    ready, records = policy.target, 0.0
    changes, wanted = [], []
    for now in range(seconds):
        ready += sum(1 for at in arrivals if at <= now)
        arrivals = [at for at in arrivals if at > now]
        if random.random() < deaths:
            ready -= 1
        ready = min(ready, policy.target)
        arrivals += [now + 5] * (policy.target - ready - len(arrivals))
        records += throughput(ready) * random.gauss(1.0, noise)
        changes.extend(policy.observe(float(now), ready, int(records)))
        wanted.append(policy.target)
    return policy, changes, wanted


@pytest.mark.parametrize("maximum", [4, 50, 3000])
def test_where_every_worker_brings_its_share_all_are_kept(maximum: int) -> None:
    _, changes, wanted = simulate(lambda n: 100.0 * n, 1, maximum)
    assert min(wanted) >= maximum - max(1, maximum // 8)
    # Trials are short and become rare.
    assert sum(wanted) / len(wanted) > 0.97 * maximum
    assert len(changes) < 40


@pytest.mark.parametrize(("useful", "maximum"), [(2, 8), (40, 300), (300, 3000)])
def test_workers_beyond_what_something_can_take_are_removed(useful: int, maximum: int) -> None:
    """They are so when the parameter plane or the disk is the limit."""
    policy, _, wanted = simulate(lambda n: 100.0 * min(n, useful), 1, maximum)
    assert useful <= policy.target <= useful + max(1, useful // 4)
    settled = wanted[len(wanted) // 2 :]
    assert sum(settled) / len(settled) < 1.3 * useful + 1


def test_workers_that_stand_in_each_other_s_way_are_removed() -> None:
    """More of them do less: threads on too few cores."""
    policy, _, _ = simulate(lambda n: 100.0 * n / (1 + 0.02 * n * n), 1, 64)
    assert 2 <= policy.target <= 12


def test_when_there_is_room_again_workers_are_added() -> None:
    limit = [10]
    policy = WorkerCountPolicy(1, 40, WorkerCountRules())
    records = 0.0
    for now in range(20_000):
        limit[0] = 10 if now < 5000 else 30
        records += 100.0 * min(policy.target, limit[0])
        policy.observe(float(now), policy.target, int(records))
        if now == 5000:
            assert policy.target <= 13
    assert policy.target >= 25


@pytest.mark.parametrize("seed", range(5))
def test_noise_and_deaths_do_not_lead_it_astray(seed: int) -> None:
    _, _, wanted = simulate(lambda n: 100.0 * n, 1, 16, noise=0.1, deaths=0.01, seed=seed)
    assert sum(wanted) / len(wanted) > 13.5
    policy, _, _ = simulate(lambda n: 100.0 * min(n, 4), 1, 16, noise=0.1, seed=seed)
    assert policy.target <= 7


def test_the_range_is_kept_and_a_fixed_number_is_left_alone() -> None:
    _, _, wanted = simulate(lambda n: 100.0, 3, 20)
    assert min(wanted) >= 3
    _, changes, _ = simulate(lambda n: 100.0, 4, 4)
    assert changes == []
    _, _, wanted = simulate(lambda n: 100.0, 0, 2)
    assert min(wanted) == 1


def test_each_decision_says_why_with_its_numbers() -> None:
    _, changes, _ = simulate(lambda n: 100.0 * min(n, 2), 1, 3, seconds=200)
    assert [(one.kind, one.workers, one.why) for one in changes] == [
        ("WorkerCountTried", 2, "Trying 2 workers instead of 3 workers with 200 records/s."),
        (
            "WorkerCountKept",
            2,
            "Keeping 2 workers with 200 records/s, instead of 3 workers with 200 records/s.",
        ),
        ("WorkerCountTried", 1, "Trying 1 worker instead of 2 workers with 200 records/s."),
        (
            "WorkerCountReverted",
            2,
            "Back to 2 workers with 200 records/s; "
            "fewer are too slow: 1 worker with 100 records/s.",
        ),
    ]
    assert changes[-1].facts == {
        "workers": "1",
        "records_per_s": "100.0",
        "previous_workers": "2",
        "previous_records_per_s": "200.0",
    }
