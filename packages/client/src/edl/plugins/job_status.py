"""The state, events, log and timeline of a submitted job."""

from __future__ import annotations

from edl.codec import decode_events, decode_status, decode_timeline, to_dict, to_json
from edl.core.job_log import ERROR_LINES, JobLogLine, LogChoice, LogReader, merge_by_time
from edl.core.job_result import UNREADABLE, error_fields
from edl.core.job_status import (
    Failure,
    JobEvent,
    JobState,
    JobStatus,
    check_more_epochs,
    final_failure,
    new_submission,
)
from edl.core.timeline import PHASES, TimelineSpan, phase_shares

__all__ = [
    "ERROR_LINES",
    "PHASES",
    "UNREADABLE",
    "Failure",
    "JobEvent",
    "JobLogLine",
    "JobState",
    "JobStatus",
    "LogChoice",
    "LogReader",
    "TimelineSpan",
    "check_more_epochs",
    "decode_events",
    "decode_status",
    "decode_timeline",
    "error_fields",
    "final_failure",
    "merge_by_time",
    "new_submission",
    "phase_shares",
    "to_dict",
    "to_json",
]
