"""The platform that other tests use keeps the promises of every platform."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from conformance.platform_suite import Behaviour, PlatformSuite
from fakes.threads import Died, Life, Machine, ThreadInstance, ThreadPlatform

from edl_master.core.identifiers import InstanceId
from edl_master.core.platform import Platform


def life(behaviour: Behaviour) -> Life | None:
    def live(instance: ThreadInstance) -> int | signal.Signals:
        match behaviour:
            case Behaviour.CRASHING:
                instance.printed += [f"line {number}" for number in range(100)]
                return 3
            case Behaviour.FINISHING:
                instance.printed.append("done")
                return 0
        instance.printed.append("up")
        while not instance.killed.wait(0.005):
            if instance.asked.is_set() and behaviour is not Behaviour.STUBBORN:
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

    def instance(self, name: InstanceId) -> ThreadInstance:
        return next(instance for instance in self.machine.instances if instance.name == name)

    def is_up(self, instance: InstanceId) -> bool:
        return "up" in self.instance(instance).printed

    def is_alive(self, instance: InstanceId) -> bool:
        return self.instance(instance).alive

    def take_away(self, instance: InstanceId) -> None:
        self.instance(instance).killed.set()

    def ask_from_outside(self, instance: InstanceId) -> None:
        self.instance(instance).asked.set()

    def close(self) -> None:
        for instance in self.machine.instances:
            instance.killed.set()
        for platform in self.platforms:
            platform.close(0)


class TestThreadPlatform(PlatformSuite):
    @pytest.fixture
    def harness(self) -> Iterator[ThreadHarness]:
        harness = ThreadHarness()
        yield harness
        harness.close()
