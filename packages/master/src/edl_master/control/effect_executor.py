"""Carries out the effects that reach beyond the master's memory: processes, files, curves.

Every method returns at once. Work that may take a while runs in a thread, and its result reaches
the job as an event.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from edl_master.adapters.checkpoint_files import DATA, LEDGER, PLANE, Checkpoint
from edl_master.adapters.checkpoints import CheckpointStorage, LocalCheckpoints
from edl_master.adapters.event_log import EventLog, make_event
from edl_master.codec import failure_of
from edl_master.control.captured_state import CapturedState
from edl_master.control.executors import CoalescingQueue, SerialExecutor
from edl_master.core.curves import Point
from edl_master.core.effects import LogEvent, LogScalar
from edl_master.core.events import (
    CheckpointFailed,
    CheckpointTaken,
    Event,
    OutputFinished,
    SnapshotTaken,
)
from edl_master.core.failure import Failure
from edl_master.core.identifiers import WorkerId
from edl_master.core.platform import Platform
from edl_master.metrics.instruments import Metrics
from edl_master.reporting.curves import Curves
from edl_master.reporting.report_writer import ReportWriter
from edl_master.server_group.group import ParameterServerGroup
from edl_proto.errors import EdlError, ErrorCode

log = logging.getLogger(__name__)

_SENT_S = 3600.0
"""How long sending the last checkpoint may take; a store that makes no progress ends it sooner."""

_PARTS_S = 600.0
"""How long parameter servers may take to write their shards; the death of one ends the wait."""


@dataclass(frozen=True, slots=True)
class EffectTargets:
    """The objects that effects act on.

    Attributes:
        platform: runs instances.
        event_log: takes events.
        curves: takes points.
        report_writer: also gets points, for TensorBoard.
        metrics: durations of checkpoints.
        checkpoints: None: the job keeps none.
        snapshots: for the next master of this job; None: the job keeps none.
        flush_output: returns when the files of every completed task are in their place;
            raises ``EdlError``.
        finish_output: makes the output from the files of the tasks; raises ``EdlError``.
        group: the parameter servers, which write their shards themselves; None: there are none.
        on_log_event: also gets the entries of the event log.
        data: the description of the job's data that goes with its position.
        note_snapshot: takes the first split of a stream that a written snapshot needs.
    """

    platform: Platform
    event_log: EventLog
    curves: Curves
    report_writer: ReportWriter
    metrics: Metrics
    checkpoints: CheckpointStorage | None
    snapshots: LocalCheckpoints | None
    flush_output: Callable[[], None]
    finish_output: Callable[[], None]
    group: ParameterServerGroup | None = None
    on_log_event: Callable[[LogEvent], None] = lambda event: None
    data: Mapping[str, Any] = field(default_factory=dict)
    note_snapshot: Callable[[int], None] = lambda oldest: None


class EffectExecutor:
    """Implements ``job_controller.ExternalEffects``.

    Args:
        targets: what effects act on.
        handle: takes events.
        on_error: takes the errors of the threads.
        grace_s: from asking an instance to leave to killing it.
    """

    def __init__(
        self,
        targets: EffectTargets,
        handle: Callable[[Event], object],
        on_error: Callable[[Exception], None],
        grace_s: float,
    ) -> None:
        self._targets = targets
        self._handle = handle
        self._grace_s = grace_s
        self._processes = SerialExecutor("platform", on_error)
        self._slow = SerialExecutor("slow", on_error)
        self._sending = SerialExecutor("checkpoints", on_error)
        self._latest_checkpoint = CoalescingQueue(self._slow)
        self._latest_snapshot = CoalescingQueue(self._slow)

    def start_worker(self, worker: WorkerId, attempt: int) -> None:
        self._processes.submit(lambda: self._targets.platform.start(worker, attempt))

    def inspect_worker(self, worker: WorkerId) -> None:
        self._processes.submit(lambda: self._targets.platform.inspect(worker))

    def stop_worker(self, worker: WorkerId, *, kill: bool) -> None:
        if kill:
            self._processes.submit(lambda: self._targets.platform.kill(worker))
        else:
            self._processes.submit(lambda: self._targets.platform.stop(worker, self._grace_s))

    def record(self, event: LogEvent, at_s: float) -> None:
        about: dict[str, object] = {
            name: event.facts[name] for name in ("worker", "task") if name in event.facts
        }
        log.log(_LEVELS[event.severity], "%s: %s", event.kind, event.message, extra=about)
        self._targets.event_log.add(
            make_event(event.kind, str(event.severity), event.message, event.facts, at_s)
        )
        self._targets.on_log_event(event)

    def log_scalar(self, point: LogScalar, at_s: float) -> None:
        self._targets.curves.add(point.name, Point(point.version, at_s, point.value))
        self._targets.report_writer.add(point)

    def find_last_checkpoint(self) -> None:
        """Let the metrics say when the newest checkpoint was taken, by any master of the job."""
        checkpoints = self._targets.checkpoints
        if checkpoints is None:
            return

        def find() -> None:
            try:
                found_at = checkpoints.newest_at()
            except EdlError as error:
                log.warning("the time of the last checkpoint cannot be read: %s", error)
            else:
                self._targets.metrics.checkpoint_last_success.set(found_at)

        # A store may take its time. What is sent comes after this, and its time is the later one.
        self._sending.submit(find)

    def write_checkpoint(self, state: CapturedState) -> None:
        checkpoints = self._targets.checkpoints
        if checkpoints is None:
            return

        def write() -> None:
            name, seconds = self._write(checkpoints, state)
            self._sending.submit(lambda: publish(name, seconds))

        def publish(name: str, seconds: float) -> None:
            started = time.monotonic()
            try:
                if not checkpoints.publish(name):
                    return
            except EdlError as error:
                # Where this machine's own disk fails, no later checkpoint can be written either. A
                # store may serve again for the next one, and only this one is lost.
                if error.code != ErrorCode.OUTPUT_UNWRITABLE:
                    raise
                log.warning("%s", error)
                self._handle(CheckpointFailed(state.version, failure_of(error)))
                return
            seconds += time.monotonic() - started
            self._targets.metrics.checkpoint_duration.labels("write").observe(seconds)
            self._targets.metrics.checkpoint_duration.labels("copy").observe(state.paused_s)
            self._targets.metrics.checkpoint_last_success.set_to_current_time()
            self._handle(CheckpointTaken(state.version, seconds, state.paused_s))

        if state.label:
            checkpoints.expect(state.label)
        self._latest_checkpoint.submit(write)

    def write_snapshot(self, state: CapturedState) -> None:
        snapshots = self._targets.snapshots
        if snapshots is None:
            return

        def write() -> None:
            # The files that it counts as done must be there for a job that continues from it.
            self._targets.flush_output()
            _, seconds = self._write(snapshots, state)
            self._targets.note_snapshot(state.oldest_split)
            self._targets.metrics.snapshot_duration.observe(seconds)
            self._targets.metrics.snapshot_last_success.set_to_current_time()
            self._handle(SnapshotTaken(state.version, seconds, state.paused_s))

        if state.label:
            snapshots.expect(state.label)
        self._latest_snapshot.submit(write)

    def _write(self, place: CheckpointStorage, state: CapturedState) -> tuple[str, float]:
        """Write a snapshot or checkpoint; return its name and the seconds that this took.

        Time before the parameter servers began to write does not count: otherwise a server that
        has just been started would delay the next snapshot by twenty times that long.
        """
        # The next master continues after the events that have led here; it does not record them.
        self._targets.event_log.flush()
        parts, parts_s = [], 0.0
        if state.label and self._targets.group is not None:
            parts_s = self._targets.group.wait_written(state.label, _PARTS_S)
            parts = place.parts(state.label, self._targets.group.count)
        documents = {LEDGER: state.ledger, DATA: self._targets.data}
        checkpoint = Checkpoint(documents, {})
        if state.plane is not None:
            plane = state.plane.get()
            checkpoint = Checkpoint({**documents, PLANE: plane.meta}, plane.arrays)
        started = time.monotonic()
        name = place.write(checkpoint, parts)
        return name, parts_s + time.monotonic() - started

    def finish_output(self) -> None:
        def finish() -> None:
            try:
                self._targets.finish_output()
            except EdlError as error:
                self._handle(OutputFinished(failure_of(error)))
            else:
                self._handle(OutputFinished())

        self._slow.submit(finish)

    def stop_now(self) -> None:
        """End all instances now: a second signal has asked for that."""
        self._processes.submit(lambda: self._targets.platform.close(0))

    def close(self, timeout_s: float) -> None:
        """Finish the submitted work."""
        for executor, longest_s in (
            (self._processes, timeout_s),
            (self._slow, timeout_s),
            (self._sending, max(timeout_s, _SENT_S)),
        ):
            if not executor.close(longest_s):
                log.error("the master ends before its files are complete")


def failure_from_exception(error: Exception) -> Failure:
    """Describe an error of the master itself for users."""
    if isinstance(error, EdlError):
        return failure_of(error)
    log.error("an internal error of edl", exc_info=error)
    return Failure(
        "INTERNAL",
        f"{type(error).__name__}: {error}",
        where="the master",
        remedy="This is an internal error of edl; the master's log has the traceback.",
    )


_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
