"""The threads that run the blocking steps of builds, and their cancellation."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from edl_builder.adapters.cancellation import CancellationFlag
from edl_builder.adapters.usage_store import UsageStore
from edl_builder.control.build_steps import BuildSteps, failure_of
from edl_builder.control.engine_lock import EngineLock
from edl_builder.core import events as ev
from edl_builder.core.build import Phase
from edl_builder.core.build_request import BuildRequest
from edl_builder.core.failure import Reason
from edl_builder.core.identifiers import BuildId, BuildIdentity, Caller
from edl_builder.core.ports import WriteLine

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkReports:
    """The receiver of reports about the work for builds.

    Attributes:
        handle: takes events.
        line_writer: gives what writes lines to the log of a build.
        phase_of: the phase that a build is in.
        redact: removes secrets from failures.
    """

    handle: Callable[[ev.Event], None]
    line_writer: Callable[[BuildId], WriteLine]
    phase_of: Callable[[BuildId], Phase]
    redact: Callable[[str], str]


class BuildWork:
    """Runs the steps of builds in threads; each piece of work ends with an event.

    Args:
        steps: the blocking work of a build.
        reports: of what it does.
        usage: counts what tenants use.
        engine_lock: shared by all builds.
        threads: how many pieces of work run at a time.
    """

    def __init__(
        self,
        steps: BuildSteps,
        reports: WorkReports,
        usage: UsageStore,
        engine_lock: EngineLock,
        threads: int,
    ) -> None:
        self._steps = steps
        self._reports = reports
        self._usage = usage
        self._engine_lock = engine_lock
        self._lock = threading.Lock()
        self._cancellations: dict[BuildId, CancellationFlag] = {}
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="work")

    def admit(self, build: BuildId) -> None:
        """Register a build whose work starts soon and can be cancelled from now on."""
        with self._lock:
            self._cancellations[build] = CancellationFlag()

    def forget(self, build: BuildId) -> None:
        """Forget a build that has ended."""
        with self._lock:
            self._cancellations.pop(build, None)

    def cancel(self, build: BuildId) -> None:
        """End the work for a build, if there is any."""
        with self._lock:
            cancellation = self._cancellations.get(build)
        if cancellation is not None:
            cancellation.cancel()

    def prepare(self, build: BuildId, request: BuildRequest, folder: Path) -> None:
        """Prepare the context of a build that was admitted."""
        cancellation = self._cancellation(build)

        def work() -> ev.Event:
            reports = self._reports
            write = reports.line_writer(build)
            return self._steps.prepare(build, request, folder, reports.handle, write, cancellation)

        self.submit(lambda: self._run(build, work, cancellation))

    def build(
        self,
        build: BuildId,
        request: BuildRequest,
        identity: BuildIdentity,
        folder: Path,
        caller: Caller,
    ) -> None:
        """Build and push from the context of a build that was admitted; ``caller`` pays."""
        cancellation = self._cancellation(build)

        def work() -> ev.Event:
            reports = self._reports
            with self._engine_lock.building():
                write = reports.line_writer(build)
                return self._steps.build(
                    build, request, identity, folder, reports.handle, write, cancellation
                )

        def work_in_time() -> None:
            with self._usage.count_time(caller):
                self._run(build, work, cancellation)

        self.submit(work_in_time)

    def submit(self, work: Callable[[], None]) -> None:
        """Run a function in one of the threads."""

        def log_errors() -> None:
            try:
                work()
            except Exception:  # no caller asks for what the thread has raised
                log.exception("internal error in a thread")

        self._threads.submit(log_errors)

    def close(self, longest_s: float) -> None:
        """Cancel everything and wait for its end, up to ``longest_s`` seconds."""
        with self._lock:
            cancellations = list(self._cancellations.values())
        for cancellation in cancellations:
            cancellation.cancel()
        closer = threading.Thread(target=self._threads.shutdown, name="end-work", daemon=True)
        closer.start()
        closer.join(longest_s)

    def _cancellation(self, build: BuildId) -> CancellationFlag:
        with self._lock:
            # Ended already: its work has nothing to do.
            return self._cancellations.get(build) or _make_cancelled_flag()

    def _run(
        self, build: BuildId, work: Callable[[], ev.Event], cancellation: CancellationFlag
    ) -> None:
        reports = self._reports
        try:
            cancellation.check()
            event = work()
        except Exception as error:
            found = failure_of(error, reports.phase_of(build))
            failure = found.redact(reports.redact)
            if found.reason is not Reason.CANCELLED:
                reports.line_writer(build)(f"failed: {failure.what}")
            event = ev.WorkFailed(build, failure)
        reports.handle(event)


def _make_cancelled_flag() -> CancellationFlag:
    flag = CancellationFlag()
    flag.cancel()
    return flag
