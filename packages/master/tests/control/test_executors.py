"""Work that is done elsewhere, in order."""

from __future__ import annotations

import threading

from edl_master.control.executors import Latest, SerialExecutor


def test_acts_are_done_in_order_and_all_before_the_end() -> None:
    done: list[int] = []
    lane = SerialExecutor("test", lambda error: None)
    for number in range(100):
        lane.do(lambda number=number: done.append(number))
    assert lane.close(60)
    assert done == list(range(100))


def test_an_act_that_fails_is_told_and_the_next_is_done() -> None:
    errors: list[str] = []
    done: list[int] = []

    def fail() -> None:
        raise ValueError("no")

    lane = SerialExecutor("test", lambda error: errors.append(str(error)))
    lane.do(fail)
    lane.do(lambda: done.append(1))
    assert lane.close(60)
    assert (errors, done) == (["no"], [1])


def test_what_is_overtaken_while_it_waits_is_never_done() -> None:
    done: list[int] = []
    begun, go = threading.Event(), threading.Event()

    def first() -> None:
        begun.set()
        assert go.wait(60)
        done.append(0)

    lane = SerialExecutor("test", lambda error: None)
    latest = Latest(lane)
    latest.do(first)
    assert begun.wait(60)
    for number in range(1, 10):
        latest.do(lambda number=number: done.append(number))
    go.set()
    assert lane.close(60)
    assert done == [0, 9]


def test_an_end_that_takes_too_long_is_said() -> None:
    go = threading.Event()
    lane = SerialExecutor("test", lambda error: None)
    lane.do(lambda: go.wait(60) and None)
    assert not lane.close(0.01)
    go.set()
