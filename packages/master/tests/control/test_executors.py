"""Work that is done elsewhere, in order."""

from __future__ import annotations

import threading

from edl_master.control.executors import CoalescingQueue, SerialExecutor


def test_actions_run_in_order_and_all_before_the_end() -> None:
    done: list[int] = []
    executor = SerialExecutor("test", lambda error: None)
    for number in range(100):
        executor.submit(lambda number=number: done.append(number))
    assert executor.close(60)
    assert done == list(range(100))


def test_the_error_of_an_action_is_passed_on_and_the_next_one_runs() -> None:
    errors: list[str] = []
    done: list[int] = []

    def fail() -> None:
        raise ValueError("no")

    executor = SerialExecutor("test", lambda error: errors.append(str(error)))
    executor.submit(fail)
    executor.submit(lambda: done.append(1))
    assert executor.close(60)
    assert (errors, done) == (["no"], [1])


def test_overtaken_actions_never_run() -> None:
    done: list[int] = []
    begun, go = threading.Event(), threading.Event()

    def first() -> None:
        begun.set()
        assert go.wait(200)
        done.append(0)

    executor = SerialExecutor("test", lambda error: None)
    latest = CoalescingQueue(executor)
    latest.submit(first)
    assert begun.wait(200)
    for number in range(1, 10):
        latest.submit(lambda number=number: done.append(number))
    go.set()
    assert executor.close(60)
    assert done == [0, 9]


def test_close_reports_that_it_took_too_long() -> None:
    go = threading.Event()
    executor = SerialExecutor("test", lambda error: None)
    executor.submit(lambda: go.wait(200) and None)
    assert not executor.close(0.01)
    go.set()
