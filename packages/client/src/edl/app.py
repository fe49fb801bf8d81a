"""The composition root: the only module that chooses between job backends, and between trackers."""

from __future__ import annotations

import atexit
import pkgutil
from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakSet

from edl.core.job_backend import JobBackend
from edl.core.platforms import PLATFORMS
from edl.core.submission import Submission
from edl.core.trackers import TRACKERS
from edl.core.tracking import ExperimentTracker
from edl.use_cases.job_catalog import JobCatalog
from edl.use_cases.job_tracking import BackgroundTracking, JobTracking

if TYPE_CHECKING:
    from edl.use_cases.job_submission import JobSubmitter


_in_use: WeakSet[JobBackend] = WeakSet()


@atexit.register
def _close() -> None:
    """Close what a command has left open: a gRPC channel may delay the end of the interpreter."""
    for backend in list(_in_use):
        backend.close()


def job_catalog() -> JobCatalog:
    """All jobs that this client can reach: those below ``$EDL_HOME``.

    A program that goes on closes it; the end of the process does, too.
    """
    return JobCatalog([_backend(platform.backend) for platform in PLATFORMS.values()])


def _backend(factory: str) -> JobBackend:
    backend: JobBackend = pkgutil.resolve_name(factory)()
    _in_use.add(backend)
    return backend


def job_submitter() -> JobSubmitter:
    """Submits jobs to the backends of ``job_catalog``."""
    # It imports numpy, which takes longer than most commands that submit nothing.
    from edl.use_cases.job_submission import JobSubmitter

    return JobSubmitter(job_catalog())


def experiment_tracker(name: str) -> ExperimentTracker:
    """The tracker that a value of ``--tracker`` names.

    Raises:
        EdlError: USAGE; it is not installed, or not configured.
    """
    tracker: ExperimentTracker = pkgutil.resolve_name(TRACKERS[name])()
    return tracker


def tracker_of(job: Submission) -> ExperimentTracker | None:
    """The tracker that a job names; it must be there before the job starts.

    Raises:
        EdlError: as ``experiment_tracker``.
    """
    return experiment_tracker(job.tracker) if job.tracker in TRACKERS else None


def job_tracking(
    backend: JobBackend, name: str, tracker: ExperimentTracker, say: Callable[[str], None]
) -> JobTracking:
    """Sends what happens to a job to a tracker.

    Args:
        backend: of the job, used by nothing else.
    """
    from edl.adapters.trained_models import open_keras_model

    return JobTracking(backend, name, tracker, open_keras_model, say)


def track_in_background(
    name: str, tracker: ExperimentTracker, say: Callable[[str], None]
) -> BackgroundTracking:
    """The same, in parallel with the command that waits for the job."""
    # A catalog of its own: the command uses another one meanwhile.
    backend = job_catalog().find(name)
    return BackgroundTracking(name, job_tracking(backend, name, tracker, say).run, say)
