"""The composition root: the only module that chooses adapters for the use cases."""

from __future__ import annotations

import atexit

from edl.adapters.local_containers import local_containers
from edl.adapters.local_processes import local_processes
from edl.use_cases.job_catalog import JobCatalog
from edl.use_cases.job_submission import JobSubmitter


def job_catalog() -> JobCatalog:
    """All jobs that this client can reach: those below ``$EDL_HOME``."""
    catalog = JobCatalog([local_processes(), local_containers()])
    # An open gRPC channel may delay the end of the interpreter.
    atexit.register(catalog.close)
    return catalog


def job_submitter() -> JobSubmitter:
    """Submits jobs to the backends of ``job_catalog``."""
    return JobSubmitter(job_catalog())
