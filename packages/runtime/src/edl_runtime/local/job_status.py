"""The state of a job on this machine, from the files of its directory."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from google.protobuf import json_format

from edl_proto.v1 import job_pb2
from edl_runtime.files import read_regular
from edl_runtime.json_texts import parse_message, parse_polled_message
from edl_runtime.local import job_directory, supervision

FINAL_STATES = frozenset(map(job_pb2.JobState.Value, supervision.FINAL_STATES))


def read_status(job_dir: Path) -> job_pb2.JobStatus:
    """Read the last status that the master wrote; an empty one if it is missing or damaged.

    Only the master writes that file; ``edl resume`` resets it while no master holds the job. If the
    job's supervisor has given the master up, the job has failed with the error of the supervisor's
    report. If the status of a job that has ended is damaged, the report still has the job's state.
    """
    status = job_pb2.JobStatus()
    try:
        parse_polled_message(read_regular(job_dir / job_directory.STATUS), status)
    except (OSError, json_format.ParseError):
        status.Clear()
    report = supervision.read_report(job_dir)
    if "error" in report and status.state not in FINAL_STATES:
        status.state = job_pb2.FAILED
        with contextlib.suppress(json_format.ParseError):
            parse_message(json.dumps(report["error"]), status.error)
        status.finished_at = str(report.get("finished_at", ""))
    elif (end := str(report.get("end"))) in supervision.FINAL_STATES and not status.state:
        status.state = job_pb2.JobState.Value(end)
    return status
