"""What every platform adapter promises, as tests; see ``edl_master.core.platform``.

An adapter's test module subclasses ``PlatformSuite`` and gives it a harness:

    class TestLocalProcesses(PlatformSuite):
        @pytest.fixture
        def harness(self, tmp_path): ...

The tests run as they are, whatever an instance is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Protocol

import pytest

from edl_master.core.events import InstanceExited, InstanceInspected, InstanceNotStarted
from edl_master.core.identifiers import InstanceId, WorkerId
from edl_master.core.platform import InstanceStarted, Observation, Platform

DEADLINE_S = 200.0
"""For everything that has to happen; no test passes or fails by how long it takes."""

LONG_S = 500.0
"""A grace period that no test waits for."""

ZERO, ONE = WorkerId(0), WorkerId(1)


class Behaviour(StrEnum):
    """How the instances of a platform behave; ``instance.py`` does it."""

    OBEDIENT = "obedient"  # runs until asked to leave, then leaves in order
    FRANK = "frank"  # like that, and its exit code says that it had been asked: 128 + signal
    STUBBORN = "stubborn"  # does not leave when asked
    NAIVE = "naive"  # does not know that it can be asked: ended by the request itself
    CRASHING = "crashing"  # prints "line 0" to "line 99" and fails with exit code 3
    FINISHING = "finishing"  # prints "done" and ends with exit code 0
    MISSING = "missing"  # cannot be started at all


class PlatformHarness(Protocol):
    """The access to a platform that the suite needs."""

    def platform(self, behaviour: Behaviour) -> Platform:
        """A platform whose instances behave so."""

    def successor(self, platform: Platform) -> Platform:
        """The platform of the next master, after the one of ``platform`` died without a word."""

    def is_up(self, instance: InstanceId) -> bool:
        """Whether an instance behaves already as it should."""

    def is_alive(self, instance: InstanceId) -> bool:
        """Whether an instance is there."""

    def take_away(self, instance: InstanceId) -> None:
        """End an instance from outside, as a preemption does: at once."""

    def ask_from_outside(self, instance: InstanceId) -> None:
        """Ask an instance to leave, not through the platform."""

    def close(self) -> None:
        """End everything that is left."""


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for something, but not for ever."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {DEADLINE_S} s for {what}"
        time.sleep(0.01)


def observe(platform: Platform, count: int) -> list[Observation]:
    """The next ``count`` observations."""
    seen: list[Observation] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(seen) < count:
        assert time.monotonic() < deadline, f"waited for {count} observations, saw {seen}"
        seen += platform.observe(1.0)
    assert len(seen) == count, seen
    return seen


def wait_for_start(platform: Platform) -> InstanceStarted:
    (seen,) = observe(platform, 1)
    assert isinstance(seen, InstanceStarted), seen
    return seen


def wait_for_exit(platform: Platform) -> InstanceExited:
    (seen,) = observe(platform, 1)
    assert isinstance(seen, InstanceExited), seen
    return seen


class PlatformSuite:
    """Subclass and give a ``harness``; the platforms that it makes are closed by the harness."""

    @pytest.fixture
    def harness(self) -> Iterator[PlatformHarness]:
        raise NotImplementedError

    @staticmethod
    def up(harness: PlatformHarness, platform: Platform, worker: WorkerId = ZERO) -> InstanceId:
        """Start an instance and wait until it behaves as it should."""
        platform.start(worker, 0)
        instance = wait_for_start(platform).instance
        until(lambda: harness.is_up(instance), f"{instance} to be up")
        return instance

    # --- starting --------------------------------------------------------------------------

    def test_an_instance_that_ends_by_itself_is_reported_once_as_started_and_once_as_exited(
        self, harness: PlatformHarness
    ) -> None:
        platform = harness.platform(Behaviour.FINISHING)
        platform.start(ONE, 4)
        first, second = observe(platform, 2)
        assert isinstance(first, InstanceStarted)
        assert isinstance(second, InstanceExited)
        assert (first.worker, first.attempt) == (ONE, 4)
        assert (second.worker, second.instance) == (ONE, first.instance)
        assert (second.exit_code, second.signal, second.preempted) == (0, None, False)
        assert platform.observe(0.05) == ()

    def test_an_instance_that_cannot_be_started_is_reported_with_a_reason(
        self, harness: PlatformHarness
    ) -> None:
        platform = harness.platform(Behaviour.MISSING)
        platform.start(ZERO, 0)
        (seen,) = observe(platform, 1)
        assert isinstance(seen, InstanceNotStarted)
        assert seen.worker == ZERO
        assert seen.reason
        assert platform.observe(0.05) == ()

    def test_every_instance_has_an_identity_of_its_own(self, harness: PlatformHarness) -> None:
        platform = harness.platform(Behaviour.OBEDIENT)
        platform.start(ZERO, 0)
        platform.start(ONE, 0)
        platform.start(ZERO, 1)
        seen = observe(platform, 3)
        instances = {each.instance for each in seen if isinstance(each, InstanceStarted)}
        assert len(instances) == 3
        assert all(harness.is_alive(instance) for instance in instances)

    def test_what_a_running_instance_says_is_found_out_on_request(
        self, harness: PlatformHarness
    ) -> None:
        platform = harness.platform(Behaviour.OBEDIENT)
        self.up(harness, platform, ONE)
        platform.inspect(ZERO)
        platform.inspect(ONE)
        (inspected,) = observe(platform, 1)
        assert isinstance(inspected, InstanceInspected), inspected
        assert (inspected.worker, inspected.attempt) == (ONE, 0)
        assert inspected.summary == "the last line of its log: up"
        assert platform.observe(0.05) == ()

    # --- exits -----------------------------------------------------------------------------

    def test_a_crash_is_reported_with_its_exit_code_and_the_end_of_what_it_printed(
        self, harness: PlatformHarness
    ) -> None:
        platform = harness.platform(Behaviour.CRASHING)
        platform.start(ZERO, 0)
        started_, crash = observe(platform, 2)
        assert isinstance(started_, InstanceStarted)
        assert isinstance(crash, InstanceExited)
        assert (crash.exit_code, crash.signal, crash.preempted) == (3, None, False)
        lines = crash.log_tail.splitlines()
        assert lines[-2:] == ["line 98", "line 99"]
        assert 20 <= len(lines) <= 60

    def test_a_log_tail_is_of_this_instance_and_not_of_the_one_before(
        self, harness: PlatformHarness
    ) -> None:
        platform = harness.platform(Behaviour.FINISHING)
        platform.start(ZERO, 0)
        observe(platform, 2)
        platform.start(ZERO, 1)
        _, second = observe(platform, 2)
        assert isinstance(second, InstanceExited)
        assert second.log_tail.splitlines() == ["done"]

    def test_an_instance_taken_away_from_outside_is_preempted(
        self, harness: PlatformHarness
    ) -> None:
        platform = harness.platform(Behaviour.OBEDIENT)
        instance = self.up(harness, platform)
        harness.take_away(instance)
        gone = wait_for_exit(platform)
        assert gone.instance == instance
        assert gone.preempted
        assert gone.exit_code is None
        assert gone.signal is not None

    def test_an_instance_that_a_request_from_outside_ended_is_preempted(
        self, harness: PlatformHarness
    ) -> None:
        platform = harness.platform(Behaviour.NAIVE)
        instance = self.up(harness, platform)
        harness.ask_from_outside(instance)
        assert wait_for_exit(platform).preempted

    def test_an_instance_whose_exit_code_reports_a_request_from_outside_is_preempted(
        self, harness: PlatformHarness
    ) -> None:
        platform = harness.platform(Behaviour.FRANK)
        instance = self.up(harness, platform)
        harness.ask_from_outside(instance)
        gone = wait_for_exit(platform)
        assert (gone.exit_code, gone.signal, gone.preempted) == (None, 15, True)

    def test_an_instance_that_leaves_in_order_when_asked_from_outside_has_its_own_exit_code(
        self, harness: PlatformHarness
    ) -> None:
        # Whether that was a preemption is what its worker told before it left.
        platform = harness.platform(Behaviour.OBEDIENT)
        instance = self.up(harness, platform)
        harness.ask_from_outside(instance)
        gone = wait_for_exit(platform)
        assert (gone.exit_code, gone.signal, gone.preempted) == (0, None, False)

    def test_many_instances_that_end_together_are_each_reported_once(
        self, harness: PlatformHarness
    ) -> None:
        platform = harness.platform(Behaviour.CRASHING)
        for number in range(8):
            platform.start(WorkerId(number), 0)
        seen = observe(platform, 16)
        for kind in (InstanceStarted, InstanceExited):
            workers = [each.worker for each in seen if isinstance(each, kind)]
            assert sorted(workers) == list(range(8))
        assert platform.observe(0.05) == ()

    # --- stopping --------------------------------------------------------------------------

    def test_a_stopped_instance_may_leave_in_order(self, harness: PlatformHarness) -> None:
        platform = harness.platform(Behaviour.OBEDIENT)
        instance = self.up(harness, platform)
        platform.stop(ZERO, LONG_S)
        gone = wait_for_exit(platform)
        assert gone.instance == instance
        assert (gone.exit_code, gone.signal, gone.preempted) == (0, None, False)
        assert not harness.is_alive(instance)

    def test_an_instance_that_does_not_leave_is_killed_after_its_grace_and_was_not_preempted(
        self, harness: PlatformHarness
    ) -> None:
        platform = harness.platform(Behaviour.STUBBORN)
        instance = self.up(harness, platform)
        platform.stop(ZERO, 0.2)
        gone = wait_for_exit(platform)
        assert gone.signal is not None
        assert not gone.preempted
        assert not harness.is_alive(instance)

    def test_a_grace_period_is_given(self, harness: PlatformHarness) -> None:
        platform = harness.platform(Behaviour.STUBBORN)
        instance = self.up(harness, platform)
        platform.stop(ZERO, LONG_S)
        assert platform.observe(0.3) == ()
        assert harness.is_alive(instance)

    def test_a_second_stop_can_shorten_the_grace_but_not_extend_it(
        self, harness: PlatformHarness
    ) -> None:
        platform = harness.platform(Behaviour.STUBBORN)
        self.up(harness, platform)
        platform.stop(ZERO, LONG_S)
        platform.stop(ZERO, 0.1)
        platform.stop(ZERO, LONG_S)
        assert not wait_for_exit(platform).preempted

    def test_kill_does_not_ask(self, harness: PlatformHarness) -> None:
        platform = harness.platform(Behaviour.STUBBORN)
        instance = self.up(harness, platform)
        platform.kill(ZERO)
        gone = wait_for_exit(platform)
        assert not gone.preempted
        assert not harness.is_alive(instance)

    def test_stopping_ends_all_instances_of_that_worker_and_no_other(
        self, harness: PlatformHarness
    ) -> None:
        platform = harness.platform(Behaviour.OBEDIENT)
        first = self.up(harness, platform)
        other = self.up(harness, platform, ONE)
        platform.start(ZERO, 1)
        second = wait_for_start(platform).instance
        until(lambda: harness.is_up(second), "the second instance")
        platform.stop(ZERO, LONG_S)
        gone = {each.instance for each in observe(platform, 2) if isinstance(each, InstanceExited)}
        assert gone == {first, second}
        assert harness.is_alive(other)

    def test_a_worker_without_an_instance_can_be_stopped(self, harness: PlatformHarness) -> None:
        platform = harness.platform(Behaviour.OBEDIENT)
        platform.stop(WorkerId(7), 1)
        platform.kill(WorkerId(7))
        assert platform.observe(0.05) == ()

    # --- closing ---------------------------------------------------------------------------

    def test_closing_leaves_no_instance_behind(self, harness: PlatformHarness) -> None:
        platform = harness.platform(Behaviour.STUBBORN)
        instances = [self.up(harness, platform, WorkerId(number)) for number in range(3)]
        platform.close(0.1)
        assert not any(harness.is_alive(instance) for instance in instances)

    def test_exits_are_reported_after_closing_and_then_observing_no_longer_waits(
        self, harness: PlatformHarness
    ) -> None:
        platform = harness.platform(Behaviour.OBEDIENT)
        instance = self.up(harness, platform)
        platform.close(LONG_S)
        platform.close(LONG_S)
        gone = wait_for_exit(platform)
        assert (gone.instance, gone.preempted) == (instance, False)
        assert platform.observe(LONG_S) == ()
        assert platform.observe(LONG_S) == ()

    def test_a_closed_platform_starts_nothing(self, harness: PlatformHarness) -> None:
        platform = harness.platform(Behaviour.OBEDIENT)
        platform.close(0)
        platform.start(ZERO, 0)
        (seen,) = platform.observe(LONG_S)
        assert isinstance(seen, InstanceNotStarted)

    # --- a master that is started again ----------------------------------------------------

    def test_a_successor_finds_the_instances_that_were_left(self, harness: PlatformHarness) -> None:
        before = harness.platform(Behaviour.OBEDIENT)
        instances = {self.up(harness, before, WorkerId(number)) for number in range(2)}
        platform = harness.successor(before)
        found = platform.adopt()
        assert {each.instance for each in found} == instances
        assert sorted((each.worker, each.attempt) for each in found) == [(0, 0), (1, 0)]
        assert platform.adopt() == ()
        assert platform.observe(0.05) == ()
        assert all(harness.is_alive(instance) for instance in instances)

    def test_an_adopted_instance_can_be_stopped_and_its_exit_is_reported(
        self, harness: PlatformHarness
    ) -> None:
        before = harness.platform(Behaviour.OBEDIENT)
        instance = self.up(harness, before)
        platform = harness.successor(before)
        platform.adopt()
        platform.stop(ZERO, LONG_S)
        gone = wait_for_exit(platform)
        assert (gone.instance, gone.preempted) == (instance, False)

    def test_the_end_of_an_adopted_instance_from_outside_counts_as_preemption(
        self, harness: PlatformHarness
    ) -> None:
        before = harness.platform(Behaviour.STUBBORN)
        instance = self.up(harness, before)
        platform = harness.successor(before)
        platform.adopt()
        harness.take_away(instance)
        assert wait_for_exit(platform).preempted

    def test_an_instance_that_ended_between_two_masters_is_not_adopted(
        self, harness: PlatformHarness
    ) -> None:
        before = harness.platform(Behaviour.OBEDIENT)
        instance = self.up(harness, before)
        platform = harness.successor(before)
        harness.take_away(instance)
        until(lambda: not harness.is_alive(instance), "the instance to be gone")
        assert platform.adopt() == ()
        assert platform.observe(0.05) == ()

    def test_closing_ends_adopted_instances_too(self, harness: PlatformHarness) -> None:
        before = harness.platform(Behaviour.STUBBORN)
        instance = self.up(harness, before)
        platform = harness.successor(before)
        platform.adopt()
        platform.close(0.1)
        assert not harness.is_alive(instance)
