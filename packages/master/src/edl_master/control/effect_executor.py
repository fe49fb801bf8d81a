"""Carries out what reaches beyond the master's memory: processes, files, curves.

Everything here returns at once; what may take a while is done on a lane of its own, and
what comes of it is told to the job as a fact.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from edl_master.adapters.checkpoint_files import LEDGER, PLANE, Checkpoint
from edl_master.adapters.checkpoints import CheckpointStorage, LocalCheckpoints
from edl_master.adapters.journal import Journal, event
from edl_master.codec import failure_of
from edl_master.control.executors import Latest, SerialExecutor
from edl_master.control.job_controller import Kept
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
from edl_master.metrics import Metrics
from edl_master.parameter_servers.group import Crew
from edl_master.reporting.curves import Curves, Point
from edl_master.reporting.report_writer import ReportWriter
from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2

log = logging.getLogger(__name__)

_SENT_S = 3600.0
"""How long the last checkpoint may take to be sent; a store that gets nowhere ends that sooner."""

_PARTS_S = 600.0
"""How long parameter servers may take to write their parts; one that dies ends the wait."""


class EffectExecutor:
    """What the job's decisions reach; implements ``controller.ExternalEffects``.

    Args:
        platform: where instances are.
        journal: where events go.
        curves: where points go.
        report_writer: also gets points, for TensorBoard.
        checkpoints: None: none are kept.
        snapshots: for the next master of this job; None: none are kept.
        settle_output: returns when the part of every task that was told to be done is in its
            place; raises ``EdlError``.
        finish_output: makes the output of the parts; raises ``EdlError``.
        metrics: durations of checkpoints.
        tell: takes facts.
        on_error: told what failed here.
        grace_s: from asking an instance to leave to killing it.
        crew: the parameter servers, which write their parts themselves; None: there are none.
    """

    def __init__(
        self,
        platform: Platform,
        journal: Journal,
        curves: Curves,
        report_writer: ReportWriter,
        checkpoints: CheckpointStorage | None,
        snapshots: LocalCheckpoints | None,
        settle_output: Callable[[], None],
        finish_output: Callable[[], None],
        metrics: Metrics,
        tell: Callable[[Event], object],
        on_error: Callable[[Exception], None],
        grace_s: float,
        crew: Crew | None = None,
    ) -> None:
        self._platform = platform
        self._journal = journal
        self._curves = curves
        self._report_writer = report_writer
        self._checkpoints = checkpoints
        self._snapshots = snapshots
        self._settle_output = settle_output
        self._finish_output = finish_output
        self._metrics = metrics
        self._tell = tell
        self._grace_s = grace_s
        self._crew = crew
        self._processes = SerialExecutor("platform", on_error)
        self._slow = SerialExecutor("slow", on_error)
        self._sending = SerialExecutor("checkpoints", on_error)
        self._latest_checkpoint = Latest(self._slow)
        self._latest_snapshot = Latest(self._slow)

    def start_worker(self, worker: WorkerId, attempt: int) -> None:
        self._processes.do(lambda: self._platform.start(worker, attempt))

    def stop_worker(self, worker: WorkerId, *, kill: bool) -> None:
        if kill:
            self._processes.do(lambda: self._platform.kill(worker))
        else:
            self._processes.do(lambda: self._platform.stop(worker, self._grace_s))

    def record(self, record: LogEvent, at_s: float) -> None:
        log.log(_LEVELS[record.severity], "%s: %s", record.kind, record.message)
        self._journal.add(
            event(record.kind, str(record.severity), record.message, record.facts, at_s)
        )

    def log_scalar(self, point: LogScalar, at_s: float) -> None:
        self._curves.add(point.name, Point(point.version, at_s, point.value))
        self._report_writer.add(point)

    def write_checkpoint(self, kept: Kept) -> None:
        checkpoints = self._checkpoints
        if checkpoints is None:
            return

        def write() -> None:
            name, seconds = self._write(checkpoints, kept)
            self._sending.do(lambda: publish(name, seconds))

        def publish(name: str, seconds: float) -> None:
            started = time.monotonic()
            try:
                if not checkpoints.publish(name):
                    return
            except EdlError as error:
                # Where this machine's own disk fails, no other can be kept either; a store may be
                # there again for the next one, and until then nothing is lost but this one.
                if error.code != error_pb2.OUTPUT_UNWRITABLE:
                    raise
                log.warning("%s", error)
                self._tell(CheckpointFailed(kept.version, failure_of(error)))
                return
            seconds += time.monotonic() - started
            self._metrics.checkpoint_duration.labels("write").observe(seconds)
            self._metrics.checkpoint_duration.labels("copy").observe(kept.held_up_s)
            self._metrics.checkpoint_last_success.set_to_current_time()
            self._tell(CheckpointTaken(kept.version, seconds, kept.held_up_s))

        if kept.label:
            checkpoints.expect(kept.label)
        self._latest_checkpoint.do(write)

    def write_snapshot(self, kept: Kept) -> None:
        snapshots = self._snapshots
        if snapshots is None:
            return

        def write() -> None:
            # What it counts as done has to be there for whoever goes on from it.
            self._settle_output()
            _, seconds = self._write(snapshots, kept)
            self._metrics.snapshot_duration.observe(seconds)
            self._tell(SnapshotTaken(kept.version, seconds, kept.held_up_s))

        if kept.label:
            snapshots.expect(kept.label)
        self._latest_snapshot.do(write)

    def _write(self, place: CheckpointStorage, kept: Kept) -> tuple[str, float]:
        """Write it, and return its name and the seconds that this took.

        Not those that passed until parameter servers had begun: a server that has just been
        started would else keep the next snapshot away for twenty times as long.
        """
        parts, parts_s = [], 0.0
        if kept.label and self._crew is not None:
            parts_s = self._crew.wait_kept(kept.label, _PARTS_S)
            parts = place.parts(kept.label, self._crew.count)
        kept_here = Checkpoint({LEDGER: kept.ledger}, {})
        if kept.plane is not None:
            documents = {LEDGER: kept.ledger, PLANE: kept.plane.meta}
            kept_here = Checkpoint(documents, kept.plane.arrays)
        started = time.monotonic()
        name = place.write(kept_here, parts)
        return name, parts_s + time.monotonic() - started

    def finish_output(self) -> None:
        def finish() -> None:
            try:
                self._finish_output()
            except EdlError as error:
                self._tell(OutputFinished(failure_of(error)))
            else:
                self._tell(OutputFinished())

        self._slow.do(finish)

    def stop_now(self) -> None:
        """End all instances now; somebody has asked twice."""
        self._processes.do(lambda: self._platform.close(0))

    def close(self, timeout_s: float) -> None:
        """Finish what was begun."""
        for lane, longest_s in (
            (self._processes, timeout_s),
            (self._slow, timeout_s),
            (self._sending, max(timeout_s, _SENT_S)),
        ):
            if not lane.close(longest_s):
                log.error("the master ends before it could finish its work on files")


def failure_from_exception(error: Exception) -> Failure:
    """What a failure in the master itself is for a person."""
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
