"""The port of job backends, and the backend of this machine, which others can build on."""

from __future__ import annotations

from edl.adapters.local.processes import ProcessRuntime, local_processes
from edl.core.submission import Submission
from edl.job_spec import encode_spec
from edl.ports.job_backend import JobBackend, JobPlacement, StatusReport

__all__ = [
    "JobBackend",
    "JobPlacement",
    "ProcessRuntime",
    "StatusReport",
    "Submission",
    "encode_spec",
    "local_processes",
]
