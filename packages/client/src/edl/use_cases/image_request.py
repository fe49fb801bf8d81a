"""Decides which image a job needs, and what to build it from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from edl import codec, settings
from edl.core import zoo_amount
from edl.core.image_build import BuildRequest, BuiltImage, service_of
from edl.core.locations import scheme
from edl.core.options import UNUSED, Given, Verb
from edl.core.problem import Problem, usage
from edl.core.submission import Submission
from edl.core.submission import build as build_submission
from edl.ports.images import ImageBuilder
from edl.ports.model_files import ModelZoos, TrainedModels
from edl.use_cases.image_build import BuildDisplay, build
from edl_runtime.model import zoo_files
from edl_runtime.model.git_source import GitSource
from edl_runtime.model.trained_model import MODEL_ZOO


def fetch_zoo(job: Submission, zoos: ModelZoos) -> Path | None:
    """Return the folder of a job's git zoo on this machine; None if a build service fetches it.

    Raises:
        EdlError: the repository cannot be fetched.
    """
    zoo = job.git_source
    if zoo is None or (job.runs_in_image and not service_of(job).is_local):
        return None
    return zoos.fetch(zoo)


def image_of(job: Submission, models: TrainedModels) -> str:
    """Return the image that exists already: named by the user, or by the trained model."""
    if job.image or job.verb is Verb.TRAIN or not job.runs_in_image:
        return job.image
    return models.image_of(job.trained_model)


def request_of(job: Submission, folder: Path | None, models: TrainedModels) -> BuildRequest | None:
    """Return what to build for a job; None if the job needs no image, or has one already.

    Args:
        folder: where the job's git zoo is on this machine, if it has been fetched.

    Raises:
        Problem: USAGE; no image repository or no base image is configured.
    """
    if not job.needs_image or image_of(job, models):
        return None
    zoo: str | GitSource = job.model_zoo
    if job.verb is not Verb.TRAIN:
        if scheme(job.trained_model):
            raise usage(
                "the trained model names no image, and is not on this machine to build one from",
                where="--trained-model",
                remedy="Name an image with --image, or copy the trained model to this machine.",
            )
        zoo = str(Path(job.trained_model) / MODEL_ZOO)
    elif job.git_source is not None:
        # A builder of this machine uses the user's own git, with the user's own credentials.
        own = service_of(job).is_local and folder is not None
        zoo = str(folder) if own else job.git_source
    return request(job, zoo)


def request(job: Submission, zoo: str | GitSource, tag: str = "") -> BuildRequest:
    """Return a build request with the values of the options.

    Raises:
        Problem: USAGE; no image repository or no base image is configured.
    """
    if not job.repository:
        raise usage(
            "no image repository is configured",
            where="--repository",
            remedy="Add --repository REGISTRY/PATH, or set repository in edl.toml;"
            " --image names an existing image.",
        )
    if service_of(job).is_local and not job.base_image and not job.builder_config:
        raise usage(
            "no base image is configured",
            where="--base-image",
            remedy="Name an image with worker and master with --base-image"
            " (deploy/docker/images.py worker makes one), or a build service with --builder.",
        )
    return BuildRequest(zoo, job.repository, tag, job.base_image, job.git_credential)


def build_zoo_image(
    flags: Mapping[str, Given],
    display: BuildDisplay,
    zoos: ModelZoos,
    builder: ImageBuilder,
    tag: str = "",
    labels: Mapping[str, str] | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    cwd: Path | None = None,
) -> BuiltImage:
    """Build the image of a model zoo, without a job.

    Raises:
        EdlError: a wrong option, or the reason why the build failed.
        KeyboardInterrupt: with a note that says what happens to the build.
    """
    needed = dict.fromkeys(("model_def", "data", "output"), UNUSED)
    folder = cwd or Path.cwd()
    try:
        given = settings.gather(Verb.TRAIN, {**needed, **flags}, environ=environ, cwd=folder)
        if "model_zoo" not in given:
            raise usage(
                "edl zoo build needs the option --model-zoo",
                remedy="For example: edl zoo build --model-zoo model_zoo"
                " --repository registry.example.com/me/zoo",
            )
        job = build_submission(Verb.TRAIN, given, cwd=str(folder), environ=environ)
        endpoint = service_of(job)
        source: str | GitSource = job.git_source or job.model_zoo
        wanted = request(job, source, tag)
    except Problem as problem:
        raise codec.error_of(problem) from None
    if isinstance(source, GitSource):
        if endpoint.is_local:
            wanted = replace(wanted, zoo=str(zoos.fetch(source)))
    else:
        zoos.check_folder(Path(source))
        files = zoo_files.select(Path(source))
        try:
            zoo_amount.check_amount(files, source, accepted=job.yes)
        except Problem as problem:
            raise codec.error_of(problem) from None
        display.say(zoo_amount.describe(files))
    return build(replace(wanted, labels=labels or {}), endpoint, display, builder)
