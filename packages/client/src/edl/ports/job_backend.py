"""The port to the places where jobs run: processes or containers of this machine, or a cluster.

An adapter implements two protocols: ``JobPlacement`` fits a submission to the backend before the
job exists, and ``JobBackend`` runs and inspects jobs by name. ``tests/conformance`` holds one suite
that every adapter passes. ``docs/adr/0015-job-backends.md`` says what a cluster needs of this port.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from edl.core.job_log import JobLogLine, LogChoice
from edl.core.job_status import JobEvent, JobStatus
from edl.core.options.value_types import WorkerRange
from edl.core.submission import Submission
from edl.core.timeline import TimelineSpan

Say: TypeAlias = Callable[[str], object]
"""Shows a sentence to the waiting user."""


def silent(text: str) -> None:
    """Show nothing, because no user waits."""


@dataclass(frozen=True, slots=True)
class LearningRate:
    """The learning rate of all updates from now on."""

    value: float


Setting = TypeVar("Setting", WorkerRange, LearningRate)
"""What can be changed while a job runs."""


class MasterUnreachable(Exception):
    """The master did not answer. It may be starting, busy, restarted at the moment, or gone."""


@dataclass(frozen=True, slots=True)
class StatusReport:
    """A job at one moment.

    Attributes:
        answered: the master itself gave this status; otherwise it is the last recorded one, with
            the state that follows from what is left of the job.
        location: where the job's state is, for messages: a directory, or namespace and name.
        keep_page_s: how long the master serves the job's page after the end, in seconds.
        dashboard_url: URL of the page while the master serves it; empty otherwise.
        page_link: makes a link: a URL that opens the page once, in one browser. It is the bare
            ``dashboard_url`` if this user cannot make a link, and empty without a page.
        description: the job's specification as plain values, as ``JobPlacement.describe`` gives it.
        details: all fields of the status as plain values, for programs.
        is_passing: its submission has not ended, or its deletion. Another submission of the name
            waits for that, or replaces what an interrupted one has left.
    """

    status: JobStatus
    answered: bool
    location: str
    keep_page_s: float
    dashboard_url: str
    page_link: Callable[[], str]
    description: Callable[[], Mapping[str, Any]]
    details: Callable[[], dict[str, Any]]
    is_passing: bool = False

    @property
    def is_over(self) -> bool:
        return self.status.state.is_over


@dataclass(frozen=True, slots=True)
class JobEntry:
    """A job in a list; ``created_s`` is the time of its creation in seconds since the epoch."""

    name: str
    created_s: float


class JobLogs(Protocol):
    """The output of a job's processes, each line once."""

    def poll(self, final: bool = False) -> Iterator[JobLogLine]:
        """Return lines completed since the last call, by their times; each source keeps its order.

        Processes that started since the last call MUST be included from their first line.

        Args:
            final: the job is over; a last line without line end is given, too.
        """

    def workers(self) -> Sequence[int]:
        """Return the numbers of the workers that have a log, in order."""


@dataclass(frozen=True, slots=True)
class ServedPage:
    """The page of a job that is over.

    Attributes:
        url: a link that opens it, as ``StatusReport.page_link`` makes it.
        wait: returns when nothing serves the page any more.
        is_served: whether the page can be opened still.
    """

    url: str
    wait: Callable[[], object]
    is_served: Callable[[], bool]


class JobPlacement(Protocol):
    """Fits a submission to a backend. Nothing here starts or writes anything."""

    def resolve(self, job: Submission, environ: Mapping[str, str]) -> Submission:
        """Complete what only the backend knows, and check that the backend can be used.

        Raises:
            EdlError: USAGE, or ENGINE_UNAVAILABLE if the backend does not answer.
        """

    def check(self, job: Submission) -> None:
        """Check all that the job needs and that can be seen from here without TensorFlow.

        Args:
            job: with the model zoo where it is on this machine, if its repository was fetched.

        Raises:
            EdlError: the first thing wrong, in the order in which a person would correct them.
        """

    def describe(self, job: Submission) -> Mapping[str, Any]:
        """Return the job's specification as plain values, as the backend would start it.

        Raises:
            EdlError: USAGE, naming an option whose location the backend's processes cannot use.
        """

    def manifest(self, job: Submission) -> Mapping[str, Any]:
        """Return what ``submit`` would create, as plain values: the specification, or the objects.

        Raises:
            EdlError: as ``describe``.
        """

    def provide_image(
        self,
        job: Submission,
        image: str,
        on_pull: Callable[[], None],
        on_line: Callable[[str], None],
    ) -> None:
        """Make an image available before the job starts. May do nothing if the backend pulls later.

        Args:
            image: pinned by its digest.
            on_pull: called once if the image is pulled now.
            on_line: called with each line of progress.

        Raises:
            EdlError: ENGINE_UNAVAILABLE or REGISTRY_UNAVAILABLE.
        """


class JobContinuation(Protocol):
    """Takes up the state that jobs have left: their newest snapshot or checkpoint.

    Names and processes are those of ``JobBackend``.
    """

    def next_steps(self, status: JobStatus) -> str:
        """Return what a person can do next with a job that is over; empty if nothing."""

    def resume(
        self,
        name: str,
        say: Say = silent,
        *,
        num_epochs: int | None = None,
        new_code: bool = False,
    ) -> bool:
        """Continue a job that is over and has not succeeded; return when its master answers.

        A job that has no state yet starts again. Every process of the job's earlier life MUST have
        ended before the next one starts. Of several callers exactly one MUST resume the job. If a
        caller is killed at any moment, the job MUST be over, running, or restarted by the next
        process that looks at it; its state MUST stay.

        Args:
            say: as that of ``JobBackend.submit``.
            num_epochs: how many epochs the job has from now on, more than before; then a job that
                has succeeded and keeps checkpoints is continued, too.
            new_code: continue with the model files as they are now, and record that. Only a
                training job whose code is in no image is asked for it.

        Returns:
            Whether this call resumed the job; False if it runs.

        Raises:
            EdlError: JOB_OVER if it has succeeded; USAGE or JOB_EXISTS if it cannot have that
                many epochs; what the master reports otherwise.
        """

    def export(
        self, name: str, output: str = "", say: Say = silent, *, overwrite: bool = False
    ) -> str:
        """Start a short job of one worker that writes the model of a training job as it is.

        That job is never changed and may be running.

        Args:
            output: a path or a URI; by default that of the job.
            say: as that of ``JobBackend.submit``.
            overwrite: replace a model that the same job has written there.

        Returns:
            The name of the short job, whose master answers.

        Raises:
            EdlError: USAGE if the job does not train; JOB_OVER, MODEL_NOT_FOUND if it has no
                state; JOB_EXISTS if it is being exported; OUTPUT_EXISTS.
        """


class JobTimelines(Protocol):
    """The record of what workers did when; names are those of ``JobBackend``."""

    def read(self, name: str) -> Sequence[TimelineSpan]:
        """Return all that is recorded of a job, in the order of the beginnings.

        Of a running job whose master answers, work in progress MUST be included. The oldest spans
        of a long job may be missing.
        """


class JobBackend(Protocol):
    """Runs jobs and answers for them by name.

    Methods that take ``name`` MUST raise EdlError JOB_NOT_FOUND for a job that this backend does
    not have. Every method MUST work from a process that did not submit the job, and after that
    process has ended. Callers MUST NOT assume that they share a file system or a network with the
    job.
    """

    @property
    def platform(self) -> str:
        """The value of ``--platform`` that selects this backend."""

    @property
    def location(self) -> str:
        """Where the state of all its jobs is, for messages."""

    @property
    def placement(self) -> JobPlacement:
        """Fits submissions to this backend."""

    @property
    def continuation(self) -> JobContinuation:
        """Takes up the state of this backend's jobs."""

    @property
    def timelines(self) -> JobTimelines:
        """The record of what the workers of this backend's jobs did when."""

    def list(self) -> Sequence[JobEntry]:
        """Return all jobs, in any order. Damaged jobs MUST be included."""

    def submit(self, job: Submission, say: Say = silent) -> bool:
        """Create a job and start its master; return when the master answers.

        Of several callers that submit one name at the same time exactly one MUST create the job;
        for the others the call waits until that job's master answers. A job that cannot be started
        MUST leave no process behind.

        Args:
            say: called with a sentence when the start waits for something that may take long, and
                whenever that changes.

        Returns:
            Whether this call created the job.

        Raises:
            EdlError: what the master reports, or MASTER_LOST, DISK_FULL, OUTPUT_UNWRITABLE.
        """

    def status(self, name: str, *, ask: bool = True) -> StatusReport:
        """Return the newest status: the master's if it answers, else the recorded one.

        A job that is neither over nor alive, and that has a process to restart it, MUST be
        restarted, or its restart MUST be under way, when this returns. The state is LOST if nothing
        restarts the job, and NOT_STARTED if it never had a master.

        Args:
            ask: ask the master; False gives the recorded status without a call.
        """

    def events(self, name: str, after: int = 0) -> Sequence[JobEvent]:
        """Return events with a number above ``after``, oldest first, also of a job that is over."""

    def logs(self, name: str, choice: LogChoice) -> JobLogs:
        """Return the logs of a job's processes; those of ended processes MUST be included."""

    def change(self, name: str, setting: Setting) -> Setting:
        """Change the workers or the learning rate of a running job; returns what it has then.

        Raises:
            MasterUnreachable: the master did not answer; nothing is known about the change.
            EdlError: JOB_OVER; USAGE, if the job has no constant learning rate.
        """

    def stop(self, name: str, reason: str, *, now: bool = False) -> None:
        """Stop a job; harmless if it is over. The job's state and logs stay.

        Args:
            now: end all processes without asking the master. The job MUST NOT be restarted.

        Raises:
            MasterUnreachable: the master did not answer; without ``now`` the job may continue.
        """

    def finalize(self, name: str, status: JobStatus) -> JobStatus:
        """Finalize a job that is over: acknowledge the result, end processes that it left.

        Returns:
            The final status, with a failure unless the job succeeded, which says how to continue
            (``JobContinuation.next_steps``). A job that is LOST gets MASTER_LOST with the end of
            the master's log.
        """

    def delete(self, name: str) -> None:
        """End what is left of a job, and remove its state, logs and events; never its output.

        A job whose description is damaged MUST be deleted like any other.

        Raises:
            EdlError: OUTPUT_UNWRITABLE.
        """

    def reach(self, name: str) -> str:
        """Return the ``host:port`` where the job's master answers callers of this machine now.

        Empty if there is none at the moment. The address may change with each restart, so callers
        MUST ask again after a failed call. A backend that forwards a port MUST keep it open until
        the process ends, and MUST NOT open another one while the first works.
        """

    def close(self) -> None:
        """Release connections to masters. Harmless when repeated; later calls connect again."""

    def serve_page(self, name: str, port: int) -> AbstractContextManager[ServedPage]:
        """Serve the page of a job that is over, within a context.

        Args:
            port: on this machine; 0 for any free port.

        Raises:
            EdlError: PORT_IN_USE, or MASTER_LOST if the page cannot be served.
        """
