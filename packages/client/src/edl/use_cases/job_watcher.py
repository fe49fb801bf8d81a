"""Watches a running job until its end, across restarts of its master."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from edl.core.job_log import ERROR_LINES, LogChoice
from edl.core.job_status import Failure, JobEvent, JobState, JobStatus
from edl.core.quantities import duration
from edl.ports.job_backend import JobBackend, MasterUnreachable, Say, Setting, StatusReport
from edl_proto.errors import EdlError, ErrorCode

T = TypeVar("T")

POLL_S = 0.5
"""Each look at a job costs its client and its master about ten milliseconds of processor time."""
MENTION_S = 5.0
"""How long a caller waits for a master before it says so."""
PATIENCE_S = 180.0
"""How long no master may answer before a caller gives up. One that freezes together with its
supervisor is replaced after 70 s: workers start a supervisor first, and that kills the master."""
OUTAGE_S = 600.0
"""How long a cluster that has answered before may leave calls unanswered; its jobs continue."""
DENIED_S = 20.0
"""How long a cluster that was away may refuse all callers: it first reads users and roles."""


def change(backend: JobBackend, name: str, setting: Setting, say: Say) -> Setting:
    """Change the workers or the learning rate of a job, and return what the master has then.

    Raises:
        EdlError: TIMED_OUT, if no master accepts the request in time.
    """
    return _ask(backend, name, lambda: backend.change(name, setting), say)


def _ask(backend: JobBackend, name: str, request: Callable[[], T], say: Say) -> T:
    """Repeat a request until a master accepts it: one that does not answer may be restarting."""
    began, is_mentioned = time.monotonic(), False
    while True:
        try:
            return request()
        except MasterUnreachable:
            waited_s = time.monotonic() - began
            if waited_s > PATIENCE_S:
                raise _silent_master_error(backend, name) from None
            if waited_s > MENTION_S and not is_mentioned:
                is_mentioned = True
                limit = duration(PATIENCE_S)
                say(f"the master of {name} does not answer; asking again for up to {limit}")
        time.sleep(POLL_S)


class JobDisplay(Protocol):
    """A display of a job while it is watched. Nothing that a display does changes the job."""

    def update(self, status: JobStatus) -> None:
        """Show the newest status."""

    def show_event(self, event: JobEvent) -> None:
        """Show an event. Events come in order, each once."""

    def say(self, text: str) -> None:
        """Show a message of one or more lines."""

    def close(self) -> None:
        """Restore the terminal. Harmless when repeated."""


class JobWatcher:
    """Watches one job.

    Args:
        timeout_s: stop the job if it takes longer than this from now on, in seconds.
    """

    def __init__(
        self, backend: JobBackend, name: str, display: JobDisplay, timeout_s: float | None = None
    ) -> None:
        self._backend = backend
        self._name = name
        self._display = display
        self._shown = 0
        self._timeout_s = timeout_s
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._timed_out = False
        self._is_stopping = False
        self._has_answered = self._is_cut_off = False

    def run(self) -> JobStatus:
        """Wait for the end of the job; may be called again after an interrupt.

        Returns:
            The final status: SUCCEEDED, FAILED, CANCELLED or LOST, with a failure unless it
            succeeded.

        Raises:
            EdlError: TIMED_OUT, if the master lives but does not answer; CLUSTER_UNAVAILABLE,
                if its cluster does not; JOB_NOT_FOUND, if the job was deleted meanwhile.
        """
        try:
            return self._watch()
        finally:
            self._backend.close()

    def stop(self, reason: str) -> None:
        """Ask the job to stop; ``run`` then sees its end.

        Raises:
            EdlError: TIMED_OUT, if no master accepts the request in time.
        """
        backend, name = self._backend, self._name
        _ask(backend, name, lambda: backend.stop(name, reason), self._display.say)
        self._is_stopping = True

    def _watch(self) -> JobStatus:
        silent_since: float | None = None
        while True:
            report = self._read_report()
            now = time.monotonic()
            if report.answered:
                silent_since = None
                self._display.update(report.status)
            elif silent_since is None or (report.status.pending and not self._is_stopping):
                silent_since = now  # no master runs while the job waits, as in a queue
            elif now - silent_since > PATIENCE_S and not report.is_over:
                raise _silent_master_error(self._backend, self._name)
            if report.is_over:
                return self._end(report.status)
            self._check_time(now)
            time.sleep(POLL_S)

    def _read_report(self) -> StatusReport:
        """Return the newest status, with the events so far shown; waits while the cluster is away.

        Raises:
            EdlError: CLUSTER_UNAVAILABLE, at once if it has never answered.
        """
        began = away_at = time.monotonic()
        while True:
            try:
                report = self._backend.status(self._name)
                if report.answered or report.is_over:
                    self._show_events(self._backend.events(self._name, self._shown))
            except EdlError as error:
                if error.code == ErrorCode.CLUSTER_UNAVAILABLE:
                    away_at = time.monotonic()
                if not self._may_pass(error, time.monotonic() - away_at):
                    raise
                if time.monotonic() - began > OUTAGE_S:
                    again = f"The job continues; edl wait {self._name} watches it again. "
                    raise EdlError(
                        error.code,
                        error.what,
                        where=error.where,
                        remedy=again + error.remedy,
                        detail=error.detail,
                    ) from None
                if not self._is_cut_off:
                    self._is_cut_off = True
                    self._display.say(f"{error.what}; {self._name} continues meanwhile")
            else:
                self._has_answered, self._is_cut_off = True, False
                return report
            time.sleep(POLL_S)

    def _may_pass(self, error: EdlError, since_s: float) -> bool:
        """Return whether a cluster that answers again for so long may still change its answer."""
        if error.code == ErrorCode.CLUSTER_UNAVAILABLE:
            return self._has_answered
        return error.code == ErrorCode.FORBIDDEN and self._is_cut_off and since_s < DENIED_S

    def _check_time(self, now: float) -> None:
        if self._is_stopping:
            return
        if self._deadline is not None and now > self._deadline:
            self._timed_out = True
            self._display.say(f"{self._name} has run for {self._limit()}; stopping it")
            self.stop(f"--timeout {self._limit()}")

    def _limit(self) -> str:
        return duration(self._timeout_s or 0.0)

    def _show_events(self, events: Sequence[JobEvent]) -> None:
        for event in events:
            if event.number > self._shown:
                self._shown = event.number
                self._display.show_event(event)

    def _end(self, status: JobStatus) -> JobStatus:
        status = self._backend.finalize(self._name, status)
        if self._timed_out and status.state is not JobState.SUCCEEDED:
            steps = self._backend.continuation.next_steps(status)
            status = replace(
                status,
                failure=Failure(
                    code="TIMED_OUT",
                    what=f"job {self._name} was not over within {self._limit()} and was stopped",
                    where="--timeout",
                    remedy=f"Allow more time, or more workers. {steps}".rstrip(),
                ),
            )
        self._display.update(status)
        return status


def _silent_master_error(backend: JobBackend, name: str) -> EdlError:
    logs = backend.logs(name, LogChoice("master", tail=ERROR_LINES))
    return EdlError(
        ErrorCode.TIMED_OUT,
        f"the master of job {name} runs, but has not answered for {duration(PATIENCE_S)}",
        where=backend.status(name, ask=False).location,
        remedy=f"The job continues. edl status {name} tries again; edl stop {name} --now ends the"
        " job in any case.",
        detail="\n".join(line.text for line in logs.poll(final=True)),
    )
