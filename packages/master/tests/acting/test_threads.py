"""The platform that other tests use keeps the promises of every platform."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from acting.threads import Died, Life, Machine, ThreadInstance, ThreadPlatform
from conformance.platform_suite import Behaviour, PlatformSuite

from edl_master.core.identifiers import InstanceId
from edl_master.core.platform import Platform


def life(behaviour: Behaviour) -> Life | None:
    def live(body: ThreadInstance) -> int | signal.Signals:
        match behaviour:
            case Behaviour.CRASHING:
                body.printed += [f"line {number}" for number in range(100)]
                return 3
            case Behaviour.FINISHING:
                body.printed.append("done")
                return 0
        body.printed.append("up")
        while not body.killed.wait(0.005):
            if body.asked.is_set() and behaviour is not Behaviour.STUBBORN:
                return 0 if behaviour is Behaviour.OBEDIENT else signal.SIGTERM
        raise Died

    return None if behaviour is Behaviour.MISSING else live


class ThreadHarness:
    def __init__(self) -> None:
        self.machine = Machine()
        self.platforms: list[ThreadPlatform] = []

    def platform(self, behaviour: Behaviour) -> ThreadPlatform:
        self.platforms.append(ThreadPlatform(life(behaviour), self.machine))
        return self.platforms[-1]

    def successor(self, platform: Platform) -> Platform:
        assert isinstance(platform, ThreadPlatform)
        platform.abandon()
        return self.platform(Behaviour.OBEDIENT)

    def body(self, name: InstanceId) -> ThreadInstance:
        return next(body for body in self.machine.bodies if body.name == name)

    def is_up(self, body: InstanceId) -> bool:
        return "up" in self.body(body).printed

    def is_alive(self, body: InstanceId) -> bool:
        return self.body(body).alive

    def take_away(self, body: InstanceId) -> None:
        self.body(body).killed.set()

    def ask_from_outside(self, body: InstanceId) -> None:
        self.body(body).asked.set()

    def close(self) -> None:
        for body in self.machine.bodies:
            body.killed.set()
        for platform in self.platforms:
            platform.close(0)


class TestThreadPlatform(PlatformSuite):
    @pytest.fixture
    def harness(self) -> Iterator[ThreadHarness]:
        harness = ThreadHarness()
        yield harness
        harness.close()
