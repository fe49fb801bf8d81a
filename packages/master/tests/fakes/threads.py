"""A platform whose instances are threads of the test's own process.

It passes the suite of all platforms. What a process cannot do to itself, dying in the middle
of anything, a thread does where it looks at ``InstanceId.check``.
"""

from __future__ import annotations

import itertools
import queue
import signal
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

from edl_master.core.events import InstanceExited, InstanceInspected, InstanceNotStarted
from edl_master.core.identifiers import InstanceId, WorkerId
from edl_master.core.platform import InstanceStarted, LiveInstance, Observation

TAIL_LINES = 40


class Died(Exception):
    """The instance was killed."""


@dataclass(eq=False)
class ThreadInstance:
    """One instance: a thread, how it may be ended, and what it has printed."""

    worker: WorkerId
    attempt: int
    name: InstanceId
    asked: threading.Event = field(default_factory=threading.Event)
    killed: threading.Event = field(default_factory=threading.Event)
    asked_by_platform: bool = False
    printed: list[str] = field(default_factory=list)
    thread: threading.Thread | None = None
    exit_code: int | None = None
    signal: int | None = None

    def check(self) -> None:
        """Die here if the instance was killed."""
        if self.killed.is_set():
            raise Died

    @property
    def alive(self) -> bool:
        return self.thread is not None and self.thread.is_alive()


Life = Callable[[ThreadInstance], int | signal.Signals]
"""What an instance does; returns its exit code, or the signal that ended it."""


class Machine:
    """All instances, of any platform; it outlives a platform."""

    def __init__(self) -> None:
        self.instances: list[ThreadInstance] = []
        self.numbers = itertools.count(1)


class ThreadPlatform:
    """A ``core.platform.Platform`` whose instances are threads.

    Args:
        life: what an instance does; None: instances cannot be started.
        machine: shared with the platforms before and after.
    """

    def __init__(self, life: Life | None, machine: Machine | None = None) -> None:
        self._life = life
        self.machine = machine or Machine()
        self._seen: queue.SimpleQueue[Observation | None] = queue.SimpleQueue()
        self._lock = threading.RLock()
        self._mine: list[ThreadInstance] = []
        self._timers: list[threading.Timer] = []
        self._over = threading.Event()
        self.abandoned = False

    def start(self, worker: WorkerId, attempt: int) -> None:
        with self._lock:
            if self._life is None or self._over.is_set():
                self._seen.put(InstanceNotStarted(worker, "there is nothing to start"))
                return
            name = InstanceId(f"threads:{next(self.machine.numbers)}:0")
            instance = ThreadInstance(worker, attempt, name)
            instance.thread = threading.Thread(
                target=self._run, args=(instance,), name=name, daemon=True
            )
            self.machine.instances.append(instance)
            self._mine.append(instance)
            self._seen.put(InstanceStarted(worker, attempt, name))
            instance.thread.start()

    def _run(self, instance: ThreadInstance) -> None:
        assert self._life is not None
        try:
            ended = self._life(instance)
        except Died:
            ended = signal.SIGKILL
        except Exception:
            instance.printed.append(traceback.format_exc())
            ended = 70
        if isinstance(ended, signal.Signals):
            instance.signal = ended
        else:
            instance.exit_code = ended
        if not self.abandoned:
            self._tell(instance)

    def _tell(self, instance: ThreadInstance) -> None:
        unknown = instance not in self._mine
        with self._lock:
            if instance in self._mine:
                self._mine.remove(instance)
        self._seen.put(
            InstanceExited(
                worker=instance.worker,
                instance=instance.name,
                exit_code=None if unknown else instance.exit_code,
                signal=None if unknown else instance.signal,
                preempted=not instance.asked_by_platform
                and (unknown or instance.signal in (signal.SIGTERM, signal.SIGKILL)),
                log_tail="\n".join(instance.printed[-TAIL_LINES:]),
                attempt=instance.attempt,
            )
        )

    def inspect(self, worker: WorkerId) -> None:
        with self._lock:
            for instance in self._of(worker):
                self._seen.put(
                    InstanceInspected(worker, instance.attempt, "the last line of its log: up")
                )

    def stop(self, worker: WorkerId, grace_s: float) -> None:
        with self._lock:
            for instance in self._of(worker):
                self._ask(instance, grace_s)

    def kill(self, worker: WorkerId) -> None:
        self.stop(worker, 0)

    def observe(self, timeout_s: float) -> tuple[Observation, ...]:
        seen: list[Observation | None] = []
        try:
            wait_s = 0 if self._over.is_set() else timeout_s
            seen.append(self._seen.get(wait_s > 0, wait_s))
            while True:
                seen.append(self._seen.get_nowait())
        except queue.Empty:
            pass
        return tuple(each for each in seen if each is not None)

    def adopt(self) -> tuple[LiveInstance, ...]:
        with self._lock:
            found = [b for b in self.machine.instances if b.alive and b not in self._mine]
            self._mine += found
            for instance in found:
                threading.Thread(target=self._watch, args=(instance,), daemon=True).start()
        return tuple(
            LiveInstance(instance.worker, instance.attempt, instance.name) for instance in found
        )

    def _watch(self, instance: ThreadInstance) -> None:
        assert instance.thread is not None
        instance.thread.join()
        self._tell(instance)

    def close(self, grace_s: float) -> None:
        with self._lock:
            mine = list(self._mine)
            for instance in mine:
                self._ask(instance, grace_s)
            self._over.set()
        deadline = time.monotonic() + grace_s + 60
        while self._mine:
            assert time.monotonic() < deadline, f"these do not end: {self._mine}"
            time.sleep(0.005)
        for timer in self._timers:
            timer.cancel()
        self._seen.put(None)

    def abandon(self) -> None:
        """Be gone without a word, as a master that was killed."""
        with self._lock:
            self.abandoned = True
            self._mine.clear()
            self._over.set()

    def _of(self, worker: WorkerId) -> list[ThreadInstance]:
        return [instance for instance in self._mine if instance.worker == worker]

    def _ask(self, instance: ThreadInstance, grace_s: float) -> None:
        instance.asked_by_platform = True
        if grace_s > 0:
            instance.asked.set()
            timer = threading.Timer(grace_s, instance.killed.set)
            timer.daemon = True
            timer.start()
            self._timers.append(timer)
        else:
            instance.killed.set()
