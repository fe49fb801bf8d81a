"""The page of a job that has no master any more, from the files of its directory."""

from __future__ import annotations

import json
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from edl_master.adapters.event_log import read_events
from edl_master.adapters.http import StatusServer
from edl_master.adapters.job_directory import JobDirectory
from edl_master.adapters.page_access import PageAccess
from edl_master.adapters.timeline_file import TimelineFile
from edl_master.core.timeline_summary import JobTimes, TimelineSummary
from edl_master.reporting.timeline_lines import read_lines
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2
from edl_runtime.local import job_directory
from edl_runtime.local.job_status import read_status

log = logging.getLogger(__name__)

FAILED = 1


class FinishedJob:
    """The last report of a job's master; implements ``adapters.http.StatusSource``.

    Args:
        directory: of the job; it is only read.

    Raises:
        EdlError: JOB_NOT_FOUND; the directory holds no job.
    """

    def __init__(self, directory: JobDirectory) -> None:
        directory.read_spec()
        self._directory = directory

    def status(self) -> job_pb2.JobStatus:
        """Return the last status; an empty one if the master never wrote any.

        If the supervisor has given the master up, the job has failed with that error.
        """
        return read_status(self._directory.path)

    def events(self, after: int, limit: int) -> Sequence[job_pb2.Event]:
        """Return the events with numbers above ``after``, oldest first."""
        try:
            return read_events(self._directory / job_directory.EVENTS, after, limit)
        except FileNotFoundError:
            return []

    def times(self) -> JobTimes:
        """Return where the time of the workers went."""
        summary = TimelineSummary()
        for spans in read_lines(TimelineFile(self._directory.path).chunks()):
            summary.add(spans)
        return summary.times()

    def metrics(self) -> bytes:
        """Return nothing: metrics of a job that is over are no news for Prometheus."""
        return b""

    def is_ready(self) -> bool:
        """Return True: there is nothing to wait for."""
        return True


def view(job_dir: Path, host: str, port: int) -> int:
    """Serve the page until SIGINT or SIGTERM; print where it is as one line of JSON.

    Returns:
        The exit code.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        source = FinishedJob(JobDirectory(job_dir))
        server = StatusServer(host, port, source, PageAccess.of_job(job_dir, job_dir.name))
    except EdlError as error:
        code = ErrorCode.Name(error.code)
        print(json.dumps({"code": code, "what": error.what, "remedy": error.remedy}), flush=True)
        log.error("%s", error)
        return FAILED
    try:
        print(json.dumps({"dashboard_url": f"http://{host}:{server.port}/"}), flush=True)
        signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        server.close()
    sys.stdout.flush()
    return 0
