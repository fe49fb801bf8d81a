"""Stage 3 of the composition: the threads that a master runs by itself.

``docs/concurrency.md`` lists all threads of the process.
"""

from __future__ import annotations

import logging
import queue
import signal
import threading
import time
from types import FrameType

from edl_master.app.services import MasterServices
from edl_master.control.executors import run_in_background
from edl_master.control.worker_instances import exit_reason
from edl_master.core.events import InstanceExited, InstancePending, Tick
from edl_master.core.parameters.arithmetic import kernel
from edl_master.core.platform import InstanceStarted

log = logging.getLogger(__name__)


class MasterThreads:
    """The clock, the observer of the platform, and the receiver of signals.

    An error in one of them fails the job: a job that lacks a thread must not continue.

    Args:
        services: of the master.
        tick_s: seconds between two ticks.
    """

    def __init__(self, services: MasterServices, tick_s: float) -> None:
        self._services = services
        self._tick_s = tick_s
        self._over = threading.Event()
        self._signals: queue.SimpleQueue[signal.Signals | None] = queue.SimpleQueue()
        self.leave = threading.Event()
        """Set when the process should end soon."""
        self.received_signal: signal.Signals | None = None

    def start(self, *, trains: bool) -> None:
        """Start the threads; the job begins."""
        fail = self._services.fail
        run_in_background("tick", self._tick, fail)
        run_in_background("observe", self._observe, fail)
        run_in_background("signals", self._handle_signals, fail)
        if self._services.stream is not None:
            stream = self._services.stream
            run_in_background("stream", lambda: stream.follow(self._over), fail)
        if trains:
            # Importing the compiler takes about a second: done while the workers import theirs.
            run_in_background("compile", lambda: kernel("accumulate"), fail)

    def stop_clock(self) -> None:
        """Stop ticks and observations: the job is over."""
        self._over.set()

    def close(self) -> None:
        """End the threads."""
        self._over.set()
        self._signals.put(None)

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        # A handler runs between any two steps of the main thread, which may hold a lock.
        self._signals.put(signal.Signals(number))

    def _tick(self) -> None:
        services = self._services
        services.controller.handle(Tick())
        view = services.controller.view()
        for request in services.requests.events(
            view.min_workers, view.max_workers, view.requested_rates
        ):
            services.controller.handle(request)
        while not self._over.wait(self._tick_s):
            services.controller.handle(Tick())
            services.buffers.trim(time.monotonic())

    def _observe(self) -> None:
        services = self._services
        while not self._over.is_set():
            for seen in services.platform.observe(1.0):
                match seen:
                    case InstanceStarted(worker, _, instance):
                        log.info("worker %d is %s", worker, instance)
                        services.controller.handle(InstancePending(worker, ""))
                    case InstanceExited():
                        services.worker_counters.forget(seen.worker, seen.instance or "")
                        if seen.instance:
                            services.timeline.record_exit(seen.worker, seen.instance)
                        services.metrics.exits.labels(exit_reason(seen)).inc()
                        services.controller.handle(seen)
                    case _:
                        services.controller.handle(seen)

    def _handle_signals(self) -> None:
        while (received := self._signals.get()) is not None:  # ``close`` puts None
            self.leave.set()
            if self.received_signal is not None:
                # The job has ended, and its last files are being written.
                self._services.effects.stop_now()
            self.received_signal = received
