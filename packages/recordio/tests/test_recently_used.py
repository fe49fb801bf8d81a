"""Values that are kept in bounded memory."""

from __future__ import annotations

from recordio.recently_used import RecentlyUsed


def test_values_that_were_not_used_for_the_longest_make_room() -> None:
    kept: RecentlyUsed[int, str] = RecentlyUsed(3)
    for number in range(9):
        kept.add(number, f"value {number}", 1)
        kept.get(0)
    assert [number for number in range(9) if kept.get(number)] == [0, 7, 8]


def test_the_newest_value_is_kept_however_large_it_is() -> None:
    kept: RecentlyUsed[int, str] = RecentlyUsed(3)
    kept.add(0, "small", 1)
    kept.add(1, "large", 9)
    assert (kept.get(0), kept.get(1)) == (None, "large")
    kept.add(1, "smaller", 2)
    kept.add(2, "small", 1)
    assert (kept.get(1), kept.get(2)) == ("smaller", "small")
