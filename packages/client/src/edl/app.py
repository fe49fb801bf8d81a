"""What the commands and the Python API do: prepare a job, start it, follow it."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from edl import codec, settings
from edl.adapters import model_zoo, preflight_checks
from edl.adapters.job_store import START_DEADLINE_S, JobStore, StoredJob
from edl.adapters.launcher import LocalLauncher, container_command
from edl.core import mounts
from edl.core.image_build import BuildRequest, BuiltImage, service_of
from edl.core.options import Given, Verb
from edl.core.problem import Problem, usage
from edl.core.submission import Submission, build
from edl.job_spec import encode_spec
from edl_proto.errors import EdlError
from edl_proto.git_source import GitSource
from edl_proto.local import job_directory
from edl_proto.v1 import error_pb2, job_pb2

if TYPE_CHECKING:
    from edl.use_cases.image_build import BuildDisplay

_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Plan:
    """A job that has been checked and can be started.

    Attributes:
        running: whether the very same job runs already, so that there is nothing to start.
        image: that it runs in, or that its trained model names; empty if there is none yet.
        order: the image that is to be built before it starts.
    """

    job: Submission
    spec: job_pb2.JobSpec
    running: bool = False
    image: str = ""
    order: BuildRequest | None = None


@dataclass(frozen=True, slots=True)
class Started:
    name: str
    dashboard_url: str
    attached: bool


class Client:
    """Submits jobs on this machine.

    Args:
        store: the jobs; those of ``$EDL_HOME`` by default.
        launcher: starts masters; from the environment by default.
    """

    def __init__(self, store: JobStore | None = None, launcher: LocalLauncher | None = None):
        self.store = store or JobStore()
        self._launcher = launcher or LocalLauncher(self.store)

    def prepare(
        self,
        verb: Verb,
        flags: Mapping[str, Given],
        *,
        environ: Mapping[str, str] = os.environ,
        cwd: Path | None = None,
    ) -> Plan:
        """Complete a job's options from the settings, and check all that needs no TensorFlow.

        Raises:
            EdlError: the first thing that is wrong; nothing has been started or written.
        """
        folder = cwd or Path.cwd()
        try:
            given = settings.gather(verb, flags, environ=environ, cwd=folder)
            job = build(verb, given, cwd=str(folder), environ=environ)
        except Problem as problem:
            raise codec.error_of(problem) from None
        as_named, checkout = job, None
        if job.in_containers or job.git_source is not None:
            job, checkout = self._settle(job, environ)
        if job.name and self.store.has(job.name):
            return Plan(job, self._spec(job), self._same_job_runs(job))
        named = job.named(secrets.token_hex(2))
        while named is not job and self.store.has(named.name):
            named = job.named(secrets.token_hex(2))
        preflight_checks.check(replace(named, model_zoo=str(checkout)) if checkout else named)
        spec = self._spec(named)
        if not job.with_image:
            return Plan(named, spec)
        from edl.use_cases import image_build

        try:
            order = image_build.order_of(as_named, checkout)
        except Problem as problem:
            raise codec.error_of(problem) from None
        return Plan(named, spec, image=image_build.image_of(named), order=order)

    def _settle(
        self, job: Submission, environ: Mapping[str, str]
    ) -> tuple[Submission, Path | None]:
        """The engine found, and a zoo from a repository brought here if it is needed here."""
        from edl.adapters import container_engine
        from edl.use_cases import image_build

        if job.in_containers:
            job = replace(job, engine=container_engine.engine_url(job.engine, environ))
            container_engine.check_engine(job.engine)
            return job, image_build.fetched(job)
        folder = image_build.fetched(job)
        return replace(job, model_zoo=str(folder)), folder

    def equip(self, plan: Plan, display: BuildDisplay) -> Plan:
        """See to the image of a plan, if it needs one: build it, have the engine get it.

        Raises:
            EdlError: it cannot be had; nothing has been started.
            KeyboardInterrupt: with a note that says what becomes of the build.
        """
        if plan.running or not plan.job.with_image:
            return plan
        from edl.use_cases import image_build

        image = plan.image
        if plan.order is not None:
            built = image_build.build(plan.order, service_of(plan.job), display)
            image = built.name
            display.say(str(built))
        if plan.job.in_containers:
            image_build.at_hand(plan.job.engine, image, display)
        plan.spec.image = image
        return replace(plan, image=image)

    def start(self, plan: Plan) -> Started:
        """Start the job of a plan, or find it running.

        Raises:
            EdlError: the master could not be started, or says at once what is wrong.
        """
        name = plan.job.name
        if not plan.running and self.store.create(name, plan.spec):
            record = self._launcher_of(plan.job).start(name)
            return Started(name, record.dashboard_url, attached=False)
        # Somebody else was quicker with this name, or it ran already.
        self._same_job_runs(plan.job)
        stored = self._await_master(name)
        return Started(name, stored.status.dashboard_url, attached=True)

    def _launcher_of(self, job: Submission) -> LocalLauncher:
        if not job.in_containers:
            return self._launcher
        return LocalLauncher(self.store, container_command())

    def _spec(self, job: Submission) -> job_pb2.JobSpec:
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        folder = str(self.store.path(job.name).absolute())
        seen: tuple[mounts.BindMount, ...] = ()
        if job.in_containers:
            try:
                seen = mounts.binds(job, str(Path.home()))
            except Problem as problem:
                raise codec.error_of(problem) from None
            if job.verb is Verb.PREDICT:
                seen += (
                    mounts.BindMount(os.path.join(folder, job_directory.PARTS), writable=True),
                )
        return encode_spec(job, folder, now, seen)

    def _same_job_runs(self, job: Submission) -> bool:
        """True if the job of this name is the same and not over; an error otherwise."""
        stored = self.store.read(job.name)
        remedy = f"Choose another --name, or forget that job first: edl delete {job.name} --yes"
        if stored.is_over:
            what = f"there is a job named {job.name} already; it is over"
            what += f" ({stored.status.state.words})"
        elif other := codec.differences(stored.spec, self._spec(job)):
            what = f"a job named {job.name} is running with other options: {', '.join(other)}"
            remedy = f"Choose another --name, or watch that job: edl status {job.name}"
        else:
            return True
        raise EdlError(error_pb2.JOB_EXISTS, what, where=str(stored.path), remedy=remedy)

    def _await_master(self, name: str) -> StoredJob:
        deadline = time.monotonic() + START_DEADLINE_S
        while True:
            stored = self.store.read(name)
            if stored.master is not None or stored.is_over:
                return stored
            if time.monotonic() > deadline:
                raise EdlError(
                    error_pb2.MASTER_LOST,
                    f"the master of job {name} does not come up",
                    where=str(self.store.log(name)),
                    remedy=f"edl logs {name} may tell why.",
                )
            time.sleep(_POLL_S)


def model_submission(
    verb: Verb,
    flags: Mapping[str, Given],
    *,
    environ: Mapping[str, str] = os.environ,
    cwd: Path | None = None,
) -> Submission:
    """A job that only names a model, for checking the model; its zoo has been looked at.

    Raises:
        EdlError: a wrong option, or MODEL_NOT_FOUND.
    """
    # What else a job of this kind must have is of no concern here.
    needed = {"data": Given("-", "-"), "output": Given("-", "-")}
    folder = cwd or Path.cwd()
    try:
        given = settings.gather(verb, {**needed, **flags}, environ=environ, cwd=folder)
        job = build(verb, given, cwd=str(folder), environ=environ)
    except Problem as problem:
        raise codec.error_of(problem) from None
    if job.git_source is not None:
        from edl.adapters import git_checkout

        job = replace(job, model_zoo=str(git_checkout.fetch(job.git_source)))
    model_zoo.check(job)
    return replace(job, output="", data=job.data if "data" in flags else ())


def build_image(
    flags: Mapping[str, Given],
    display: BuildDisplay,
    tag: str = "",
    labels: Mapping[str, str] | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    cwd: Path | None = None,
) -> BuiltImage:
    """Build the image of a model zoo, without a job.

    Raises:
        EdlError: a wrong option, or what kept it from being built.
        KeyboardInterrupt: with a note that says what becomes of the build.
    """
    from edl.adapters import git_checkout
    from edl.use_cases import image_build

    needed = {name: Given("-", "-") for name in ("model_def", "data", "output")}
    folder = cwd or Path.cwd()
    try:
        given = settings.gather(Verb.TRAIN, {**needed, **flags}, environ=environ, cwd=folder)
        if "model_zoo" not in given:
            raise usage(
                "edl zoo build needs the option --model-zoo",
                remedy="For example: edl zoo build --model-zoo model_zoo"
                " --repository registry.example.com/me/zoo",
            )
        job = build(Verb.TRAIN, given, cwd=str(folder), environ=environ)
        service = service_of(job)
        source: str | GitSource = job.git_source or job.model_zoo
        order = image_build.order(job, source, tag)
    except Problem as problem:
        raise codec.error_of(problem) from None
    if isinstance(source, GitSource):
        if service.is_local:
            order = replace(order, zoo=str(git_checkout.fetch(source)))
    else:
        model_zoo.check_folder(Path(source))
    return image_build.build(replace(order, labels=labels or {}), service, display)
