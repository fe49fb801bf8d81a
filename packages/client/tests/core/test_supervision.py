"""When a job's master is started again, and when it is given up."""

from __future__ import annotations

import pytest

from edl.core.supervision import BRIEF_LIVES, Deaths, GiveUp, Restart


def test_the_first_start_has_no_wait() -> None:
    assert Deaths().after(100.0, 9, None) == Restart(0.0)
    assert Deaths().after(0.5, 9, None) == Restart(0.0)
    assert Deaths().after(0.5, None, 1) == Restart(0.0)


def test_kills_with_some_life_in_between_never_end_a_job() -> None:
    deaths = Deaths()
    assert all(deaths.after(6.0, 9, None) == Restart(0.0) for _ in range(1000))


@pytest.mark.parametrize("how", [(None, 1), (11, None), (None, 127)])
def test_a_master_that_ends_by_itself_at_once_is_given_up(how: tuple[int, int]) -> None:
    deaths = Deaths()
    verdicts = [deaths.after(0.5, *how) for _ in range(3)]
    assert verdicts[0] == Restart(0.0)
    assert verdicts[1] == Restart(0.25)
    assert isinstance(verdicts[2], GiveUp)
    assert "3 times" in verdicts[2].why


def test_a_crash_after_a_good_life_begins_the_count_anew() -> None:
    deaths = Deaths()
    for _ in range(10):
        assert isinstance(deaths.after(0.5, None, 1), Restart)
        assert isinstance(deaths.after(0.5, None, 1), Restart)
        assert deaths.after(60.0, None, 1) == Restart(0.0)


def test_waits_double_up_to_a_limit_and_kills_at_once_are_given_up_in_the_end() -> None:
    deaths = Deaths()
    verdicts = [deaths.after(0.5, 9, None) for _ in range(BRIEF_LIVES)]
    waits = [verdict.delay_s for verdict in verdicts if isinstance(verdict, Restart)]
    assert waits[:6] == [0.0, 0.25, 0.5, 1.0, 2.0, 4.0]
    assert set(waits[6:]) == {5.0}
    assert isinstance(verdicts[-1], GiveUp)


def test_of_a_master_that_was_only_found_nothing_is_known_but_its_end() -> None:
    deaths = Deaths()
    assert all(isinstance(deaths.after(6.0, None, None), Restart) for _ in range(50))
