"""Exit codes of a worker process; the master learns the reason from the worker's report."""

from __future__ import annotations

FAILED = 1
"""The worker cannot work: its model file, its data or its connection to the master."""

USAGE = 2
"""Wrong command line or environment."""

INTERNAL_ERROR = 70
"""A bug of edl, or user code that ended the session."""
