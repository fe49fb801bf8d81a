"""An iterator that is read one element ahead."""

from __future__ import annotations

import pytest

from edl_worker.tasks.lookahead import Lookahead


def test_a_lookahead_knows_whether_it_goes_on() -> None:
    ahead = Lookahead(iter([1, 2]))
    assert ahead.take() == 1
    assert ahead.has_next()
    assert ahead.take() == 2
    assert not ahead.has_next()
    assert ahead.take() is None


def test_a_lookahead_raises_what_its_source_raises_and_closes_it() -> None:
    closed: list[bool] = []

    def numbers():
        try:
            yield 1
            raise ValueError("two is missing")
        finally:
            closed.append(True)

    ahead = Lookahead(numbers())
    assert ahead.take() == 1
    with pytest.raises(ValueError, match="two is missing"):
        ahead.has_next()
    early = Lookahead(numbers())
    assert early.has_next()
    early.close()
    assert early.take() is None
    assert closed == [True, True]
