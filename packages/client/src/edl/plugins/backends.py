"""The port of job backends, what they encode, and the backend of this machine to build on."""

from __future__ import annotations

from edl.adapters.job_service_client import JobServiceClient
from edl.adapters.local.instances import LocalInstance
from edl.adapters.local.job_store import JobStore, submission_time
from edl.adapters.local.jobs import LocalJobBackend
from edl.adapters.local.placement import LocalPlacement
from edl.adapters.local.processes import ProcessRuntime, local_processes
from edl.core.diagnostics import Diagnostic, DiagnosticGrade
from edl.core.submission import Submission
from edl.job_spec import encode_spec, export_fields, start_fields
from edl.ports.job_backend import (
    JobBackend,
    JobEntry,
    JobLogs,
    JobPlacement,
    MasterUnreachable,
    Say,
    ServedPage,
    Setting,
    StatusReport,
    silent,
)

__all__ = [
    "Diagnostic",
    "DiagnosticGrade",
    "JobBackend",
    "JobEntry",
    "JobLogs",
    "JobPlacement",
    "JobServiceClient",
    "JobStore",
    "LocalInstance",
    "LocalJobBackend",
    "LocalPlacement",
    "MasterUnreachable",
    "ProcessRuntime",
    "Say",
    "ServedPage",
    "Setting",
    "StatusReport",
    "Submission",
    "encode_spec",
    "export_fields",
    "local_processes",
    "silent",
    "start_fields",
    "submission_time",
]
