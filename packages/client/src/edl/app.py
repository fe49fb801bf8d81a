"""What the commands and the Python API do: prepare a job, start it, follow it."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from edl import codec, settings
from edl.adapters import checks, zoo
from edl.adapters.jobs import START_DEADLINE_S, JobStore, StoredJob
from edl.adapters.launcher import LocalLauncher
from edl.core.options import Given, Verb
from edl.core.problem import Problem
from edl.core.submission import Submission, build
from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2, job_pb2

_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Plan:
    """A job that has been checked and can be started.

    Attributes:
        running: whether the very same job runs already, so that there is nothing to start.
    """

    job: Submission
    spec: job_pb2.JobSpec
    running: bool = False


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
        if job.name and self.store.has(job.name):
            return Plan(job, self._spec(job), self._same_job_runs(job))
        named = job.named(secrets.token_hex(2))
        while named is not job and self.store.has(named.name):
            named = job.named(secrets.token_hex(2))
        checks.check(named)
        return Plan(named, self._spec(named))

    def start(self, plan: Plan) -> Started:
        """Start the job of a plan, or find it running.

        Raises:
            EdlError: the master could not be started, or says at once what is wrong.
        """
        name = plan.job.name
        if not plan.running and self.store.create(name, plan.spec):
            record = self._launcher.start(name)
            return Started(name, record.dashboard_url, attached=False)
        # Somebody else was quicker with this name, or it ran already.
        self._same_job_runs(plan.job)
        stored = self._await_master(name)
        return Started(name, stored.status.dashboard_url, attached=True)

    def _spec(self, job: Submission) -> job_pb2.JobSpec:
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        return codec.encode_spec(job, str(self.store.path(job.name).absolute()), now)

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
    zoo.check(job)
    return replace(job, output="", data=job.data if "data" in flags else ())
