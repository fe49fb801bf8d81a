"""The commands that this package adds to ``edl``."""

from __future__ import annotations

from edl.plugins import CommandEntry

_WATCH = "Watch and control jobs"

TRACE = CommandEntry(
    "edl_watch.trace_command:trace", _WATCH, "write what each worker did when, as a trace"
)
DASHBOARD_ALL = CommandEntry(
    "edl_watch.fleet_command:serve_all", _WATCH, "serve one page with all jobs"
)
