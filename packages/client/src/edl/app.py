"""The composition root: the only module that knows which adapter is behind which port.

Each function imports the adapters that it wires, so that a command loads no others: together they
would take longer to import than most commands take to run.
"""

from __future__ import annotations

import atexit
import logging
import os
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast
from weakref import WeakSet

from edl import settings
from edl.codec import error_of
from edl.core.diagnostics import Diagnostic
from edl.core.images import IMAGES
from edl.core.platforms import BUILT_IN, KUBERNETES, PLATFORMS
from edl.core.plugins import PlugIns
from edl.core.problem import Problem, usage
from edl.core.submission import Submission
from edl.core.trackers import TRACKERS
from edl.ports.experiment_tracker import ExperimentTracker
from edl.ports.images import ImageBuilder, ImageSignatures
from edl.ports.job_backend import JobBackend
from edl.ports.model_files import ModelZoos, Verdict
from edl.ports.release_folder import ReleaseFolder
from edl.use_cases.job_catalog import JobCatalog
from edl.use_cases.job_tracking import BackgroundTracking, JobTracking

if TYPE_CHECKING:
    from edl.use_cases.job_submission import JobSubmitter

T = TypeVar("T")

_in_use: WeakSet[JobBackend] = WeakSet()


@atexit.register
def _close() -> None:
    """Close what a command has left open: a gRPC channel may delay the end of the interpreter."""
    for backend in list(_in_use):
        backend.close()


def job_catalog(options: Mapping[str, Any] = {}) -> JobCatalog:
    """Return all jobs that this client can reach: those below ``$EDL_HOME``, and of a cluster.

    A program that goes on closes it; the end of the process does, too.

    Args:
        options: of jobs, by name; platform, context and namespace say which cluster that is, before
            the settings do.
    """
    with settings.clusters_of(options):
        return _job_catalog()


def _job_catalog() -> JobCatalog:
    _require_cluster_package()
    platforms, problems = PLATFORMS.load_all()
    backends = []
    for name, platform in platforms.items():
        try:
            backend: JobBackend = pkgutil.resolve_name(platform.backend)()
        except Exception as error:
            if name in BUILT_IN:
                raise
            problems[name] = usage(
                f"the platform {name} does not work: {type(error).__name__}: {error}",
                where=platform.backend,
                remedy="Repair or uninstall the package that it comes from.",
            )
        else:
            _in_use.add(backend)
            backends.append(backend)
    for problem in problems.values():
        _warn(f"warning: {problem.what}; its jobs are not found")
    return JobCatalog(backends, problems)


def _require_cluster_package() -> None:
    """Make sure that a cluster which the user has chosen is not left out without a word.

    Raises:
        EdlError: the package for clusters is missing, or the settings cannot be read.
    """
    try:
        if settings.cluster_choice(os.environ, Path.cwd()):
            PLATFORMS[KUBERNETES]
    except Problem as problem:
        raise error_of(problem) from None


@cache
def _warn(text: str) -> None:
    """Write a warning to stderr, once."""
    logging.getLogger(__name__).warning(text)


def job_submitter(options: Mapping[str, Any] = {}) -> JobSubmitter:
    """Return what submits jobs to the backends of ``job_catalog``, which takes the options."""
    from edl.adapters import data_files, data_schema, image_record, trained_models
    from edl.use_cases.job_submission import JobSubmitter, SubmissionPorts

    ports = SubmissionPorts(
        zoos=model_zoos(),
        models=trained_models,
        check_model=check_model,
        data=data_files,
        descriptions=data_schema,
        builder=image_builder,
        signatures=image_signatures,
        used_images=image_record,
    )
    return JobSubmitter(job_catalog(options), ports)


def release_folder(place: str) -> ReleaseFolder:
    """Return the folder of releases at a path or a URI."""
    from edl.adapters.release_folder import open_releases

    return open_releases(place)


def model_zoos() -> ModelZoos:
    """Return the access to model zoos."""
    from edl.adapters import model_zoo

    return model_zoo


def image_builder() -> ImageBuilder:
    """Return the access to builders of images. Raises: EdlError: USAGE; it is not installed."""
    return cast(ImageBuilder, _load(IMAGES, "builder"))


def image_signatures() -> ImageSignatures:
    """Return the access to signatures of images. Raises: EdlError: USAGE; it is not installed."""
    return cast(ImageSignatures, _load(IMAGES, "verifier"))


def check_data(job: Submission) -> None:
    """Check the files of a job's data and its validation data.

    Raises:
        EdlError: the first thing that is wrong.
    """
    from edl.adapters.local.preflight_checks import check_data

    check_data(job)


def check_model(job: Submission) -> Verdict:
    """Have a worker process of this machine find all errors of a job's model file at once.

    Raises:
        EdlError: the check has ended without a verdict.
    """
    from edl.adapters.local import model_file_check
    from edl.job_spec import encode_spec

    return model_file_check.check(encode_spec(job, job_dir="", submitted_at=""))


def create_zoo(folder: Path) -> list[str]:
    """Create a model zoo to start from, and return its files relative to the folder.

    Raises:
        EdlError: OUTPUT_EXISTS, OUTPUT_UNWRITABLE or DISK_FULL.
    """
    from edl.adapters.zoo_template import create

    return create(folder)


def examine_machine() -> Iterable[Diagnostic]:
    """Check whether this machine has everything that a job needs, the quick things first."""
    from edl.adapters.local.machine_diagnostics import examine

    return examine()


def open_in_browser(link: str) -> None:
    """Open a page by its link."""
    from edl.adapters.local import dashboard_viewer

    dashboard_viewer.open_in_browser(link)


def _load(plug_ins: PlugIns[T], name: str) -> T:
    try:
        return plug_ins[name]
    except Problem as problem:
        raise error_of(problem) from None


def experiment_tracker(name: str) -> ExperimentTracker:
    """Return the tracker that a value of ``--tracker`` names.

    Raises:
        EdlError: USAGE; it is not installed, or not configured.
    """
    return cast(ExperimentTracker, _load(TRACKERS, name)())


def tracker_of(job: Submission) -> ExperimentTracker | None:
    """Return the tracker that a job names; it must be there before the job starts.

    Raises:
        EdlError: as ``experiment_tracker``.
    """
    return experiment_tracker(job.tracker) if job.tracker in TRACKERS else None


def job_tracking(
    backend: JobBackend, name: str, tracker: ExperimentTracker, say: Callable[[str], None]
) -> JobTracking:
    """Return the tracking that sends the progress of a job to a tracker.

    Args:
        backend: of the job, used by nothing else.
    """
    from edl.adapters.trained_models import open_keras_model

    return JobTracking(backend, name, tracker, open_keras_model, say)


def track_in_background(
    name: str, tracker: ExperimentTracker, say: Callable[[str], None]
) -> BackgroundTracking:
    """Return a tracking that runs in the background while the command waits for the job."""
    # A catalog of its own: the command uses another one meanwhile.
    backend = job_catalog().find(name)
    return BackgroundTracking(name, job_tracking(backend, name, tracker, say).run, say)
