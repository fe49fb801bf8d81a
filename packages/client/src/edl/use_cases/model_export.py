"""Writes the model of a job that has not ended, was stopped, or failed."""

from __future__ import annotations

import os
from dataclasses import replace

from edl import codec
from edl.core import locations
from edl.core.job_status import JobState, JobStatus
from edl.core.problem import Problem
from edl.use_cases.job_catalog import JobCatalog
from edl.use_cases.job_watcher import JobDisplay, JobWatcher

_UNTRAINED = "nothing was trained yet: these are the initial values"


def export_model(
    catalog: JobCatalog, name: str, output: str, display: JobDisplay, *, overwrite: bool = False
) -> JobStatus:
    """Write the model of a job's newest snapshot or checkpoint, and wait for the end.

    Args:
        output: a path or a URI; empty: the output of the job.
        overwrite: replace a model that the same job has written there.

    Returns:
        The final status of the short job that did it. If it succeeded, it is deleted, and the
        status has the name of the job whose model it is, and a warning if that has trained nothing.

    Raises:
        EdlError: a wrong output, or as ``JobContinuation.export``.
    """
    try:
        locations.check(output, "--output")
        locations.check_model_folder(output, "--output")
    except Problem as problem:
        raise codec.error_of(problem) from None
    backend = catalog.find(name)
    place = locations.absolute(output, os.getcwd(), os.environ) if output else ""
    short = backend.continuation.export(name, place, display.say, overwrite=overwrite)
    status = JobWatcher(backend, short, display).run()
    if status.state is JobState.SUCCEEDED:
        backend.delete(short)
        warnings = status.warnings if status.version else (*status.warnings, _UNTRAINED)
        return replace(status, job=name, warnings=warnings)
    return status
