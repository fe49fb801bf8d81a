"""The composition root: the only module that chooses adapters for the use cases."""

from __future__ import annotations

import atexit
import pkgutil

from edl.core.job_backend import JobBackend
from edl.core.platforms import PLATFORMS
from edl.use_cases.job_catalog import JobCatalog
from edl.use_cases.job_submission import JobSubmitter


def job_catalog() -> JobCatalog:
    """All jobs that this client can reach: those below ``$EDL_HOME``."""
    catalog = JobCatalog([_backend(platform.backend) for platform in PLATFORMS.values()])
    # An open gRPC channel may delay the end of the interpreter.
    atexit.register(catalog.close)
    return catalog


def _backend(factory: str) -> JobBackend:
    backend: JobBackend = pkgutil.resolve_name(factory)()
    return backend


def job_submitter() -> JobSubmitter:
    """Submits jobs to the backends of ``job_catalog``."""
    return JobSubmitter(job_catalog())
