"""Keeps an eye on a running job until its end, whatever becomes of its master."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Protocol

from edl import codec
from edl.adapters import processes
from edl.adapters.job_store import JobStore
from edl.adapters.master_client import MasterClient, MasterUnreachable
from edl.core.job_status import Failure, JobEvent, JobState, JobStatus
from edl.core.quantities import duration
from edl_proto.errors import EdlError

POLL_S = 0.25
SILENCE_S = 60.0
"""How long a master whose process lives may be silent before the watcher gives up."""
STOP_S = 60.0
"""How long a job may take to stop: the workers' grace, and a full disk's patience."""
_WORKER_GRACE_S = 2.0
_LOG_LINES = 15


class JobDisplay(Protocol):
    """Shows a job while it is followed. Nothing it does changes the job."""

    def update(self, status: JobStatus) -> None:
        """The newest look at the job."""

    def happened(self, event: JobEvent) -> None:
        """An event, in order, each once."""

    def say(self, text: str) -> None:
        """A message to the user, one or more lines."""

    def close(self) -> None:
        """Leave the terminal as it was. Harmless when repeated."""


class JobWatcher:
    """Follows one job.

    Args:
        timeout_s: the job is stopped when it takes longer, from now on.
    """

    def __init__(
        self, store: JobStore, name: str, display: JobDisplay, timeout_s: float | None = None
    ) -> None:
        self._store = store
        self._name = name
        self._display = display
        self._seen = 0
        self._timeout_s = timeout_s
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._timed_out = False
        self._stop_deadline: float | None = None
        self._link: MasterClient | None = None

    def run(self) -> JobStatus:
        """Wait for the end of the job; may be called again after an interrupt.

        Returns:
            The final status: SUCCEEDED, FAILED, CANCELLED or LOST, with a failure unless it
            succeeded.

        Raises:
            EdlError: MASTER_LOST, if the master lives but answers nobody; JOB_NOT_FOUND, if
                somebody deleted the job meanwhile.
        """
        silent_since: float | None = None
        try:
            while True:
                # Looked at before the call: what ended before it has had its last word.
                stored = self._store.read(self._name)
                status = self._ask(stored.master.address if stored.master else "")
                if status is None and stored.is_over:
                    # Over by the file, and nobody answers: nothing more will come.
                    self._tell_events(self._store.events(self._name, self._seen))
                    return self._end(last_word(self._store, stored.status))
                now = time.monotonic()
                if status is not None:
                    silent_since = None
                    self._display.update(status)
                    if status.state.is_final:
                        self._acknowledge()
                        return self._end(status)
                elif silent_since is None:
                    silent_since = now
                elif now - silent_since > SILENCE_S:
                    raise _mute(self._store, self._name)
                self._watch_time(now)
                time.sleep(POLL_S)
        finally:
            self._disconnect()

    def stop(self, reason: str) -> None:
        """Ask the job to stop; ``run`` then sees its end."""
        deadline = time.monotonic() + STOP_S
        while True:
            stored = self._store.read(self._name)
            if stored.is_over:
                return
            try:
                if stored.master is not None:
                    self._connect(stored.master.address).stop(reason)
                    self._stop_deadline = time.monotonic() + STOP_S
                    return
            except MasterUnreachable:
                # It may be busy, or on its way back; a job that is not told to stop would go on.
                self._disconnect()
            if time.monotonic() > deadline:
                raise _mute(self._store, self._name)
            time.sleep(POLL_S)

    def _watch_time(self, now: float) -> None:
        if self._stop_deadline is not None:
            if now > self._stop_deadline:
                raise _mute(self._store, self._name)
        elif self._deadline is not None and now > self._deadline:
            self._timed_out = True
            self._display.say(f"{self._limit()} are over; stopping {self._name}")
            self.stop(f"--timeout {self._limit()}")

    def _limit(self) -> str:
        return duration(self._timeout_s or 0.0)

    def _ask(self, address: str) -> JobStatus | None:
        if not address:
            return None
        try:
            link = self._connect(address)
            status = link.status()
            self._tell_events(link.events(self._seen))
        except MasterUnreachable:
            return None
        return status

    def _tell_events(self, events: list[JobEvent]) -> None:
        for event in events:
            if event.number > self._seen:
                self._seen = event.number
                self._display.happened(event)

    def _acknowledge(self) -> None:
        try:
            if self._link is not None:
                self._link.acknowledge()
        except (MasterUnreachable, EdlError):
            pass  # it has ended already, which is all that this is about

    def _end(self, status: JobStatus) -> JobStatus:
        if self._timed_out and status.state is not JobState.SUCCEEDED:
            status = replace(
                status,
                failure=Failure(
                    code="TIMED_OUT",
                    what=f"job {self._name} was not over within {self._limit()} and was stopped",
                    where="--timeout",
                    remedy="Allow more time, or more workers.",
                ),
            )
        elif status.state is not JobState.SUCCEEDED and status.failure is None:
            status = replace(status, failure=unexplained(status))
        self._display.update(status)
        return status

    def _connect(self, address: str) -> MasterClient:
        if self._link is None or self._link.address != address:
            self._disconnect()
            self._link = MasterClient(address)
        return self._link

    def _disconnect(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None


def last_word(store: JobStore, status: JobStatus) -> JobStatus:
    """The end of a job that is over and whose master is gone, after cleaning up what is left.

    Without a last word of the master that is LOST, with the end of its log.
    """
    if status.state.is_final:
        return status
    left = end_workers(store, status.job)
    also = f"; {left} of its workers were ended" if left else ""
    return replace(
        status,
        state=JobState.LOST,
        failure=Failure(
            code="MASTER_LOST",
            what=f"the master of job {status.job} is gone without a last word{also}",
            where=str(store.log(status.job)),
            remedy=(
                "If something killed it (memory?), mend that; then submit again under another"
                f" name, or after edl delete {status.job} --yes."
            ),
            detail=store.log_tail(status.job, _LOG_LINES),
        ),
    )


def end_workers(store: JobStore, name: str) -> int:
    """End the workers that a job without a master has left; how many there were."""
    ended = 0
    while left := processes.end(store.workers(name), _WORKER_GRACE_S):
        ended += len(left)
    return ended


def unexplained(status: JobStatus) -> Failure:
    """For a job that ended badly and whose master did not say why."""
    stopped = status.state is JobState.CANCELLED
    return Failure(
        code="STOPPED" if stopped else "INTERNAL",
        what=f"job {status.job} " + ("was stopped" if stopped else "failed without a reason"),
        where=status.job,
        remedy=f"edl events {status.job} tells what happened before.",
    )


def _mute(store: JobStore, name: str) -> EdlError:
    return codec.error_of(
        Failure(
            code="MASTER_LOST",
            what=f"the master of job {name} runs, but has not answered for a while",
            where=str(store.log(name)),
            remedy=f"edl status {name} tries again; edl stop {name} --now ends it in any case.",
            detail=store.log_tail(name, _LOG_LINES),
        )
    )
