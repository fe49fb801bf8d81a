"""Keeps the files of a job up to date: status, events, timeline, TensorBoard."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from edl_master.adapters.event_log import EventLog
from edl_master.adapters.job_directory import JobDirectory
from edl_master.core.effects import LogScalar
from edl_master.reporting.timeline_recorder import TimelineRecorder
from edl_proto.v1 import job_pb2

if TYPE_CHECKING:
    from edl_master.adapters.tensorboard import TensorBoard

log = logging.getLogger(__name__)

_STOP_S = 30.0
"""How long a disk may keep the last writes waiting before the master ends without them."""

_TENSORBOARD_EVERY_S = 2.0
"""TensorBoard itself looks every half a minute."""


class ReportWriter:
    """Writes what is new, in a thread of its own.

    Args:
        directory: of the job.
        event_log: its events.
        timeline: what its workers did when.
        tensorboard_dir: made with the first point.
        status_every_s: how often the status is written.
        flush_every_s: how often events and timeline are written.
        on_error: called once when something cannot be written; nothing is written after that.
    """

    def __init__(
        self,
        directory: JobDirectory,
        event_log: EventLog,
        timeline: TimelineRecorder,
        tensorboard_dir: Path,
        status_every_s: float,
        flush_every_s: float,
        on_error: Callable[[Exception], None],
    ) -> None:
        self._directory = directory
        self._event_log = event_log
        self._timeline = timeline
        self._tensorboard_dir = tensorboard_dir
        self._tensorboard: TensorBoard | None = None
        self._status_every_s = status_every_s
        self._flush_every_s = flush_every_s
        self._on_error = on_error
        self._lock = threading.Lock()
        self._points: list[tuple[float, LogScalar]] = []
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, status: Callable[[], job_pb2.JobStatus]) -> None:
        """Begin to write; ``status`` gives the job as it is."""
        self._thread = threading.Thread(
            target=self._run, args=(status,), name="reports", daemon=True
        )
        self._thread.start()

    def add(self, point: LogScalar) -> None:
        """Take a point for TensorBoard."""
        with self._lock:
            self._points.append((time.time(), point))

    def stop(self) -> None:
        """Write what is left of events, timeline and curves, and stop.

        Raises:
            EdlError: OUTPUT_UNWRITABLE or DISK_FULL.
        """
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(_STOP_S)
            if self._thread.is_alive():
                log.error(
                    "writes to the job's directory hang; the ends of its files may be missing"
                )
        self._timeline.close()
        try:
            self._write_points()
            if self._tensorboard is not None:
                self._tensorboard.close()
        finally:
            self._event_log.close()

    def _run(self, status: Callable[[], job_pb2.JobStatus]) -> None:
        next_status = next_points = time.monotonic()
        try:
            while not self._stopped.wait(self._flush_every_s):
                self._event_log.flush()
                self._timeline.flush()
                now = time.monotonic()
                if now >= next_status:
                    self._directory.write_status(status())
                    next_status = now + self._status_every_s
                if now >= next_points:
                    self._write_points()
                    next_points = now + _TENSORBOARD_EVERY_S
        except Exception as error:
            self._on_error(error)

    def _write_points(self) -> None:
        with self._lock:
            points, self._points = self._points, []
        if not points:
            return
        if self._tensorboard is None:
            # A third of the master's imports; the workers must not wait for them.
            from edl_master.adapters.tensorboard import TensorBoard

            self._tensorboard = TensorBoard(self._tensorboard_dir)
        for at_s, point in points:
            self._tensorboard.add(point.name, point.version, point.value, at_s)
        self._tensorboard.flush()
