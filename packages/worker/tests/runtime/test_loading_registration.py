"""A worker that loads the model file while its master is replaced stays known to the new one."""

from __future__ import annotations

import threading

import pytest

from edl_worker.runtime.loading_registration import keep_registered


class Master:
    """Is replaced when the test says so."""

    def __init__(self) -> None:
        self.replaced = False
        self.registered = threading.Semaphore(0)
        self.registrations = 0

    def register(self) -> None:
        self.registrations += 1
        self.replaced = False
        self.registered.release()


@pytest.mark.parametrize("times", [0, 1, 3])
def test_each_new_master_gets_a_registration(times: int) -> None:
    master = Master()
    with keep_registered(lambda: master.replaced, master.register, 0.01):
        for _ in range(times):
            master.replaced = True
            assert master.registered.acquire(timeout=200)
    assert master.registrations == times
    master.replaced = True
    assert not master.registered.acquire(timeout=0.1), "afterwards the session does it"


def test_a_registration_that_fails_is_left_to_the_session() -> None:
    tried = threading.Event()

    def fails() -> None:
        tried.set()
        raise RuntimeError("no")

    with keep_registered(lambda: True, fails, 0.01):
        assert tried.wait(200)


def test_an_error_of_the_model_file_comes_out() -> None:
    with pytest.raises(ValueError, match="model"), keep_registered(lambda: False, lambda: None):
        raise ValueError("model")


def test_a_registration_that_has_begun_is_waited_for() -> None:
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()
    replaced = iter((True, False, False))

    def register() -> None:
        begun.set()
        assert go_on.wait(200)
        done.set()

    with keep_registered(lambda: next(replaced, False), register, 0.01):
        assert begun.wait(200)
        threading.Timer(0.1, go_on.set).start()
    assert done.is_set()
