"""Turns options into a running job: checks all, provides the image, starts or finds the job."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from edl import codec, settings
from edl.core import zoo_amount
from edl.core.image_build import BuildRequest, BuildStatus, service_of
from edl.core.job_status import JobState
from edl.core.model_code import Listing, describe_changes
from edl.core.options import UNUSED, Given, Verb
from edl.core.problem import Problem, usage
from edl.core.submission import Submission, build
from edl.core.trackers import TRACKERS
from edl.ports.data_files import DataDescriptions, DataFiles
from edl.ports.images import ImageBuilder, ImageRecord, ImageSignatures
from edl.ports.job_backend import JobBackend, Say, silent
from edl.ports.model_files import ModelCheck, ModelZoos, TrainedModels, Verdict
from edl.use_cases import image_build, image_request
from edl.use_cases.image_build import BuildDisplay
from edl.use_cases.job_catalog import JobCatalog
from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.model.zoo_files import ZooFiles, code_names


@dataclass(frozen=True, slots=True)
class SubmissionPorts:
    """The ports that a submission needs besides its backend."""

    zoos: ModelZoos
    models: TrainedModels
    check_model: ModelCheck
    data: DataFiles
    descriptions: DataDescriptions
    builder: Callable[[], ImageBuilder]
    signatures: Callable[[], ImageSignatures]
    used_images: ImageRecord


@dataclass(frozen=True, slots=True)
class SubmissionPlan:
    """A job that has been checked and can be started.

    Attributes:
        description: the job's specification as plain values.
        running: the very same job runs already, so there is nothing to start.
        image: the image that the job runs in, or that its trained model names; empty if it has
            still to be built.
        build_request: the image to build before the job starts.
        zoo: the files of the model zoo that go into the trained model; None if only the builder
            or the image has them.
        schema: the file next to the data that described it to the model; None if none did.
        warnings: what the job may go wrong by, in sentences.
    """

    job: Submission
    description: Mapping[str, Any]
    running: bool = False
    image: str = ""
    build_request: BuildRequest | None = None
    zoo: ZooFiles | None = None
    schema: str | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StartedJob:
    """A job whose master answers.

    Attributes:
        name: of the job.
        dashboard_url: of its page.
        page_link: opens the page; empty while no master serves it.
        attached: whether it ran before this submission.
    """

    name: str
    dashboard_url: str
    page_link: str
    attached: bool


def announcement(started: StartedJob, job: Submission) -> str:
    """Return what to say of a job that has been started, in one line or more."""
    how = "started"
    if started.attached:
        how = "runs already" if job.detach else "runs already; watching it"
    page = started.page_link or f"edl dashboard {started.name}"
    lines = [f"{started.name} {how}, page: {page}"]
    if job.detach and job.tracker in TRACKERS:
        lines.append(f"edl track {started.name}  # sends it to {job.tracker}")
    return "\n".join(lines)


class JobSubmitter:
    """Submits jobs to the backend that their platform names."""

    def __init__(self, catalog: JobCatalog, ports: SubmissionPorts) -> None:
        self.catalog = catalog
        self._ports = ports

    def prepare(
        self,
        verb: Verb,
        flags: Mapping[str, Given],
        *,
        environ: Mapping[str, str] = os.environ,
        cwd: Path | None = None,
    ) -> SubmissionPlan:
        """Complete a job's options from the settings, and check all that needs no TensorFlow.

        Raises:
            EdlError: the first thing that is wrong; nothing has been started or written.
        """
        folder = cwd or Path.cwd()
        try:
            given = settings.gather(verb, flags, environ=environ, cwd=folder)
            requested = build(verb, given, cwd=str(folder), environ=environ)
        except Problem as problem:
            raise codec.error_of(problem) from None
        backend = self.catalog.backend_for(requested)
        placement = backend.placement
        job = placement.resolve(requested, environ)
        self._check_trained_model(job, folder)
        checkout = None
        if job.git_source is not None:
            checkout = image_request.fetch_zoo(job, self._ports.zoos)
            if checkout is not None and not job.runs_in_image:
                job = replace(job, model_zoo=str(checkout))
        zoo = self._files_of(replace(job, model_zoo=str(checkout)) if checkout else job)
        if zoo is not None:
            job = replace(job, code=self._hash_code(job, checkout))
        job, schema = self._describe_data(job, checkout)
        if job.name and self.catalog.has(job.name) and self._same_job_runs(backend, job):
            return SubmissionPlan(job, placement.describe(job), running=True)
        named = job.with_name(secrets.token_hex(2))
        while named is not job and self.catalog.has(named.name):
            named = job.with_name(secrets.token_hex(2))
        here = replace(named, model_zoo=str(checkout)) if checkout is not None else named
        placement.check(here)
        description = placement.describe(named)
        warnings = () if zoo is None else self._ports.zoos.find_outside_files(named, zoo)
        if not job.needs_image:
            return SubmissionPlan(named, description, zoo=zoo, schema=schema, warnings=warnings)
        try:
            request = image_request.request_of(requested, checkout, self._ports.models)
        except Problem as problem:
            raise codec.error_of(problem) from None
        image = image_request.image_of(named, self._ports.models)
        return SubmissionPlan(named, description, False, image, request, zoo, schema, warnings)

    def dry_run(self, plan: SubmissionPlan) -> Verdict:
        """Check what only a look at all data and a trial run of the model show; starts no job.

        The data and packages of a job in containers are seen by its own processes only.

        Returns:
            What a worker has found.

        Raises:
            EdlError: the first thing that is wrong; its detail has the others.
        """
        job = plan.job
        if job.runs_in_image:
            return Verdict(warnings=plan.warnings)
        check_records = self._ports.data.check_records
        check_records(job.data, job.data_format, "--data")
        check_records(job.validation_data, job.data_format, "--validation-data")
        verdict = self._ports.check_model(job)
        if verdict.failures:
            first, *others = map(codec.error_of, verdict.failures)
            if others:
                first.what += f" (and {len(others)} more)"
                first.detail = "\n".join(map(str, others))
            raise first
        return verdict

    def manifest(self, plan: SubmissionPlan) -> Mapping[str, Any]:
        """Return the objects that starting the job would create, as plain values."""
        job = replace(plan.job, image=plan.image) if plan.image else plan.job
        return self.catalog.backend_for(job).placement.manifest(job)

    def provide_image(self, plan: SubmissionPlan, display: BuildDisplay) -> SubmissionPlan:
        """Provide the image of a plan, if it needs one: build it, or have the backend pull it.

        Raises:
            EdlError: the image cannot be provided; nothing has been started.
            KeyboardInterrupt: with a note that says what happens to the build.
        """
        if plan.running or not plan.job.needs_image:
            return plan
        image = plan.image
        if plan.build_request is not None:
            built = image_build.build(
                plan.build_request, service_of(plan.job), display, self._ports.builder()
            )
            image = built.name
            display.say(str(built))
            if plan.job.code and plan.job.git_source is None:  # a checkout stays as it is
                self._check_unchanged(plan)
        if plan.job.image_public_key:
            self._ports.signatures().check(image, plan.job.image_public_key)
        placement = self.catalog.backend_for(plan.job).placement
        placement.provide_image(
            plan.job, image, lambda: display.update(BuildStatus("", "pulling")), display.line
        )
        with contextlib.suppress(OSError):  # then a model that names it asks for trust
            self._ports.used_images.add(image)
        display.close()
        return replace(plan, image=image, job=replace(plan.job, image=image))

    def start(self, plan: SubmissionPlan, say: Say = silent) -> StartedJob:
        """Start the job of a plan, or find it running.

        Args:
            say: gets what the start waits for, if it takes long.

        Raises:
            EdlError: the master could not be started, or reports at once what is wrong.
            KeyboardInterrupt: with a note that says what is left of the job.
        """
        name = plan.job.name
        backend = self.catalog.backend_for(plan.job)
        if plan.running:
            self._same_job_runs(backend, plan.job)  # raises if the job was deleted meanwhile
        try:
            attached = not backend.submit(plan.job, say)
        except KeyboardInterrupt as interrupt:
            interrupt.add_note(self._remains(name))
            raise
        if attached:
            # The job ran before, or another user submitted this name at the same moment.
            self._same_job_runs(backend, plan.job)
        report = backend.status(name, ask=False)
        url = report.dashboard_url or report.status.dashboard_url
        return StartedJob(name, url, report.page_link(), attached)

    def _remains(self, name: str) -> str:
        """Describe what there is of a job whose start was interrupted."""
        try:
            found = self.catalog.find(name).status(name, ask=False)
        except EdlError as error:
            if error.code == ErrorCode.JOB_NOT_FOUND:
                return "interrupted; no job was started"
            return f"interrupted; edl status {name} shows whether the job was started"
        if found.status.state is JobState.NOT_STARTED:
            steps = f"edl resume {name} starts it, edl delete {name} --yes removes it."
            return f"interrupted; the job {name} was not started. {steps}"
        return f"interrupted; the job {name} continues: edl status {name}"

    def _same_job_runs(self, backend: JobBackend, job: Submission) -> bool:
        """Return True if the job of this name is the same and not over; raise an error otherwise.

        False if its submission has not ended, or its deletion: a backend knows what to do then.
        """
        holder = self.catalog.find(job.name)
        found = holder.status(job.name, ask=False)
        remedy = f"Choose another --name, or delete that job first: edl delete {job.name} --yes"
        if found.is_passing:
            return False
        if found.is_over:
            what = f"a job named {job.name} exists already; it is over ({found.status.state.words})"
            if steps := holder.continuation.next_steps(found.status):
                remedy = f"{steps} {remedy}"
        elif other := codec.differences(found.description(), backend.placement.describe(job)):
            what = f"a job named {job.name} is running with other options: {', '.join(other)}"
            remedy = f"Choose another --name, or look at that job: edl status {job.name}"
        else:
            return True
        raise EdlError(ErrorCode.JOB_EXISTS, what, where=found.location, remedy=remedy)

    def _check_trained_model(self, job: Submission, folder: Path) -> None:
        """Refuse the name of a job in place of the folder of its trained model.

        Only a bare name, which became a path in the current folder: any other path may be one of
        the cluster, or of a store, whatever it ends with.

        Raises:
            EdlError: MODEL_NOT_FOUND.
        """
        path = Path(job.trained_model)
        is_bare = bool(job.trained_model) and path.parent == folder
        # os.path: a name may be too long for a file.
        if not is_bare or os.path.exists(path) or not self.catalog.has(path.name):
            return
        output = self.catalog.recorded_status(path.name).status.output
        raise EdlError(
            ErrorCode.MODEL_NOT_FOUND,
            f"the trained model does not exist; {path.name} is the name of a job",
            where=str(path),
            remedy=f"Name the job's output: --trained-model {output or 'DIR'}",
        )

    def _describe_data(
        self, job: Submission, checkout: Path | None
    ) -> tuple[Submission, str | None]:
        """Return a training job with the description of its data, where the model takes one."""
        if job.verb is not Verb.TRAIN or (job.git_source is not None and checkout is None):
            return job, None
        try:
            return self._ports.descriptions.describe(job, checkout or Path(job.model_zoo))
        except Problem as problem:
            raise codec.error_of(problem) from None

    def _files_of(self, job: Submission) -> ZooFiles | None:
        """Return what a training job copies from a zoo that is a folder.

        Raises:
            EdlError: LIMIT_EXCEEDED, if that has to be accepted first.
        """
        if job.verb is not Verb.TRAIN or job.git_source is not None:
            return None
        files = self._ports.zoos.files_of(job)
        try:
            zoo_amount.check_amount(files, job.model_zoo, accepted=job.yes)
        except Problem as problem:
            raise codec.error_of(problem) from None
        return files

    def _hash_code(self, job: Submission, checkout: Path | None) -> Listing:
        folder = checkout or Path(job.model_zoo)
        return self._ports.zoos.hash_code(folder, code_names(partial(getattr, job)))

    def _check_unchanged(self, plan: SubmissionPlan) -> None:
        """Check that the image has the code that the job records.

        Raises:
            EdlError: MODEL_NOT_FOUND; the files have changed since.
        """
        now = self._hash_code(plan.job, None)
        if changes := describe_changes(plan.job.code, now):
            raise EdlError(
                ErrorCode.MODEL_NOT_FOUND,
                f"the model files have changed while their image was built: {changes}",
                where=plan.job.model_zoo,
                remedy="Submit the job again.",
            )


_NAMING_A_MODEL = {"model_zoo": "--model-zoo", "model_def": "--model-def"}


def model_submission(
    verb: Verb,
    flags: Mapping[str, Given],
    zoos: ModelZoos,
    *,
    environ: Mapping[str, str] = os.environ,
    cwd: Path | None = None,
) -> Submission:
    """Return a job that only names a model, for checking the model file; its zoo has been checked.

    Raises:
        EdlError: a wrong option, or MODEL_NOT_FOUND.
    """
    needed = {"data": UNUSED, "output": UNUSED}
    folder = cwd or Path.cwd()
    try:
        given = settings.gather(verb, {**needed, **flags}, environ=environ, cwd=folder)
        if missing := [flag for name, flag in _NAMING_A_MODEL.items() if name not in given]:
            raise usage(
                f"edl zoo check needs the option{'s'[: len(missing) > 1]} {', '.join(missing)}",
                remedy="For example: edl zoo check --model-zoo my_zoo --model-def circle",
            )
        job = build(verb, given, cwd=str(folder), environ=environ)
    except Problem as problem:
        raise codec.error_of(problem) from None
    if job.git_source is not None:
        job = replace(job, model_zoo=str(zoos.fetch(job.git_source)))
    zoos.check(job)
    return replace(job, output="", data=job.data if "data" in flags else ())
