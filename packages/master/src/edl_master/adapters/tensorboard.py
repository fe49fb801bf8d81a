"""Curves as TensorBoard event files, written without TensorFlow."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.summary_pb2 import Summary

from edl_master.adapters.storage_errors import storage_error


class TensorBoard:
    """Event files in one directory: one series per name, steps are parameter versions.

    Not the library's SummaryWriter: that one writes in a thread of its own, and when the disk
    is full the thread ends without a message and the writer blocks for good. This one writes where
    it is called, and raises.
    """

    def __init__(self, directory: Path) -> None:
        """Open a new event file. Raises: EdlError: OUTPUT_UNWRITABLE or DISK_FULL."""
        self._directory = directory
        try:
            directory.mkdir(parents=True, exist_ok=True)
            # Its name holds the second and the host; a master that is started again is another.
            self._file = EventsWriter(str(directory / "events"), f".{os.getpid()}")
            self._file.flush()
        except OSError as error:
            raise storage_error(error, directory) from error

    def add(self, name: str, step: int, value: float, at_s: float | None = None) -> None:
        """Add a point; ``at_s`` is in seconds since the epoch, now by default.

        Raises:
            EdlError: OUTPUT_UNWRITABLE or DISK_FULL.
        """
        summary = Summary(value=[Summary.Value(tag=name, simple_value=value)])
        wall_time = time.time() if at_s is None else at_s
        try:
            self._file.write_event(Event(wall_time=wall_time, step=step, summary=summary))
        except OSError as error:
            raise storage_error(error, self._directory) from error

    def flush(self) -> None:
        """Let readers see what was added. Raises: EdlError: OUTPUT_UNWRITABLE or DISK_FULL."""
        try:
            self._file.flush()
        except OSError as error:
            raise storage_error(error, self._directory) from error

    def close(self) -> None:
        """Write what is left. Raises: EdlError: OUTPUT_UNWRITABLE or DISK_FULL."""
        try:
            self._file.close()
        except OSError as error:
            raise storage_error(error, self._directory) from error
