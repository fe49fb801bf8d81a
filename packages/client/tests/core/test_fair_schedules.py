from __future__ import annotations

import pytest
from fair_schedules import endless


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        ({0: 1, 1: 2, 2: 2}, {0: 0, 1: 1, 2: 2}, {2}),  # the other one cannot keep it from its end
        ({0: 1, 1: 1, 2: 2}, {0: 2, 1: 1, 2: 2}, {1, 2}),  # who comes first decides
        ({0: 1, 1: 1, 2: 0}, {0: 0, 1: 2, 2: 2}, {0, 1, 2}),  # they undo each other
        ({0: 1, 1: 0, 2: 2}, {0: 2, 1: 2, 2: 2}, {2}),  # until the other one acts
    ],
)
def test_where_two_processes_stay(
    one: dict[int, int], other: dict[int, int], wanted: set[int]
) -> None:
    found = endless([0], lambda state: {"a": one[state], "b": other[state]}, {"a", "b"})
    assert set(found) == wanted


def test_an_order_that_changes_all_the_time_is_tried() -> None:
    """Alternating, these two always come from 0 to 3, in either order; by a, a, b they never do."""
    a = {0: 1, 1: 2, 2: 2, 3: 3, 4: 3}
    b = {0: 4, 1: 3, 2: 0, 3: 3, 4: 0}
    found = endless([0], lambda state: {"a": a[state], "b": b[state]}, {"a", "b"})
    assert set(found) == {0, 1, 2, 3, 4}
