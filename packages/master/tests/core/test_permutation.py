"""Seeded orders are permutations, the same everywhere, and differ by seed."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edl_master.core.permutation import Permutation, derive_seed, task_seed

at_leisure = settings(deadline=None)


@at_leisure
@given(size=st.integers(1, 1500), seed=st.integers(0, 2**64 - 1))
def test_every_number_has_one_position(size: int, seed: int) -> None:
    order = Permutation(size, seed)
    assert sorted(order.at(position) for position in range(size)) == list(range(size))


@at_leisure
@given(
    size=st.integers(1, 10**12),
    seed=st.integers(0, 2**63 - 1),
    positions=st.sets(st.integers(0, 10**12), max_size=40),
)
def test_positions_of_huge_orders_do_not_collide(size: int, seed: int, positions: set[int]) -> None:
    order = Permutation(size, seed)
    inside = {position % size for position in positions}
    numbers = {order.at(position) for position in inside}
    assert len(numbers) == len(inside)
    assert all(0 <= number < size for number in numbers)


@pytest.mark.parametrize("position", [-1, 5, 6])
def test_positions_outside_are_an_error(position: int) -> None:
    with pytest.raises(IndexError):
        Permutation(5, 0).at(position)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_small_orders_take_every_shape(size: int) -> None:
    seen = Counter(
        tuple(Permutation(size, derive_seed(seed)).at(i) for i in range(size))
        for seed in range(2000)
    )
    assert set(seen) == set(permutations(range(size)))


def test_a_large_order_is_no_pattern() -> None:
    """Neighbours land far from each other, and halves mix."""
    order = Permutation(10_000, 7)
    numbers = [order.at(position) for position in range(10_000)]
    steps = [abs(a - b) for a, b in pairwise(numbers)]
    assert 3000 < sum(steps) / len(steps) < 3700  # a third of the size, as for true randomness
    assert 2300 < sum(number < 5000 for number in numbers[:5000]) < 2700


def test_orders_are_the_same_for_ever() -> None:
    """A snapshot of today is restored by the program of tomorrow."""
    order = Permutation(10, derive_seed(0, 0))
    assert [order.at(position) for position in range(10)] == [8, 5, 9, 3, 6, 1, 0, 7, 2, 4]
    assert task_seed(1, 2, 3) == 3851293329796251419


def test_seeds_depend_on_every_part_and_its_place() -> None:
    parts = [(a, b, c) for a in range(12) for b in range(12) for c in range(12)]
    assert len({task_seed(*part) for part in parts}) == len(parts)
    assert all(0 <= task_seed(-1, 0, number) < 2**63 for number in range(100))
