"""Parameter servers on a platform: former ones are ended, and every loss is reported."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable

from fakes.threads import Machine, ThreadInstance, ThreadPlatform

from edl_kubernetes.cluster.api import ApiError
from edl_kubernetes.master.server_pods import ServerPods
from edl_master.core.events import InstancePending
from edl_master.core.identifiers import WorkerId
from edl_master.core.platform import LiveInstance, Observation

LONG_S = 120.0


def serve(instance: ThreadInstance) -> int | signal.Signals:
    while not instance.asked.wait(0.01):
        instance.check()
    return 0


def test_servers_of_a_former_master_end_before_new_ones_start() -> None:
    machine, ends = Machine(), queue.SimpleQueue[tuple[int, str]]()
    former = ThreadPlatform(serve, machine)
    for number in range(2):
        former.start(number, 0)
    former.abandoned = True
    servers = ServerPods(ThreadPlatform(serve, machine), 2, lambda *end: ends.put(end))
    deadline = threading.Event()
    while sum(each.alive for each in machine.instances[2:]) < 2:
        deadline.wait(0.01)  # the test's own limit ends this
    assert not any(each.alive for each in machine.instances[:2])
    assert ends.empty(), "no server of this master was lost"
    servers.close(5)
    assert not any(each.alive for each in machine.instances)
    assert ends.empty(), "an end that was asked for is no loss"


def test_a_server_that_ends_or_cannot_start_is_lost() -> None:
    ends = queue.SimpleQueue[tuple[int, str]]()
    servers = ServerPods(ThreadPlatform(lambda _: 3), 1, lambda *end: ends.put(end))
    assert ends.get(timeout=LONG_S) == (0, "ended: exit code 3")
    servers.close(0)
    none = ServerPods(ThreadPlatform(None), 1, lambda *end: ends.put(end))
    number, how = ends.get(timeout=LONG_S)
    assert (number, how.partition(":")[0]) == (0, "could not be started")
    none.close(0)


def test_what_a_server_waits_for_is_told_until_it_runs() -> None:
    may_start, told = threading.Event(), threading.Event()

    class NoRoom(ThreadPlatform):
        """Has a place only when it may."""

        def observe(self, timeout_s: float) -> tuple[Observation, ...]:
            if not told.is_set():
                told.set()
                return (InstancePending(WorkerId(1), "Unschedulable", "0/2 nodes"),)
            may_start.wait(LONG_S)
            return super().observe(timeout_s)

    servers = ServerPods(NoRoom(serve), 2, lambda *end: None)
    until(lambda: servers.pending == ("", "Unschedulable: 0/2 nodes"))
    may_start.set()
    until(lambda: servers.pending == ("", ""))
    servers.close(5)


def test_servers_that_cannot_be_followed_are_lost() -> None:
    ends = queue.SimpleQueue[tuple[int, str]]()

    class NoRight(ThreadPlatform):
        def adopt(self) -> tuple[LiveInstance, ...]:
            raise ApiError(403, "Forbidden", "pods is forbidden")

    servers = ServerPods(NoRight(serve), 2, lambda *end: ends.put(end))
    assert ends.get(timeout=LONG_S) == (0, "cannot be followed: ApiError: pods is forbidden")
    servers.close(0)


def until(met: Callable[[], bool]) -> None:
    pause = threading.Event()
    while not met():
        pause.wait(0.01)  # the test's own limit ends this
