"""Resumes a job with the code that was submitted, or with other code if a person says so."""

from __future__ import annotations

from pathlib import Path

from edl import codec
from edl.core.job_status import JobState
from edl.core.model_code import (
    JOB_CODE,
    NEW_CODE,
    changed_code_error,
    choice_error,
    describe_changes,
    fixed_code_error,
)
from edl.core.options import Verb
from edl.core.platforms import PLATFORMS
from edl.ports.job_backend import JobBackend, Say, StatusReport
from edl.ports.model_files import ModelZoos
from edl_runtime.model.zoo_files import code_names


def resume_job(
    backend: JobBackend,
    zoos: ModelZoos,
    name: str,
    say: Say,
    *,
    num_epochs: int | None = None,
    code: str = "",
) -> bool:
    """Continue a job that is over; see ``JobContinuation.resume``.

    Args:
        code: JOB_CODE or NEW_CODE; empty: the job's own, if the files in its zoo are still that.

    Returns:
        Whether this call resumed the job; False if it runs.

    Raises:
        EdlError: USAGE, if the files have changed and ``code`` is empty, or if the job cannot take
            new code; or as ``JobContinuation.resume``.
    """
    if code not in ("", JOB_CODE, NEW_CODE):
        raise codec.error_of(choice_error(code))
    report = backend.status(name, ask=False)
    trains = report.status.verb is Verb.TRAIN
    takes_code = trains and not PLATFORMS[backend.platform].runs_in_image
    if code == NEW_CODE:
        if not takes_code:
            raise codec.error_of(fixed_code_error(name))
        return backend.continuation.resume(name, say, num_epochs=num_epochs, new_code=True)
    continues = report.is_over and (num_epochs or report.status.state is not JobState.SUCCEEDED)
    if not code and continues:
        _check_unchanged(report, zoos, takes_code=takes_code)
    return backend.continuation.resume(name, say, num_epochs=num_epochs)


def _check_unchanged(report: StatusReport, zoos: ModelZoos, *, takes_code: bool) -> None:
    """Check that the model files are those that were submitted, if they are still there.

    Raises:
        EdlError: USAGE, naming those that differ.
    """
    model = report.description().get("model") or {}
    code = model.get("code") or {}  # a job on a trained model has none
    folder = code.get("folder", "")
    if folder and Path(folder).is_dir():
        names = code_names(lambda field: model.get(field, ""))
        now = zoos.hash_code(Path(folder), names)
        if changes := describe_changes(code.get("files", {}), now):
            problem = changed_code_error(report.status.job, changes, folder, takes_code=takes_code)
            raise codec.error_of(problem)
