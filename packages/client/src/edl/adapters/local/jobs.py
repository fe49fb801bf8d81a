"""Jobs of this machine: a directory for each, processes or containers as the runtime has them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from edl import codec
from edl.adapters.local import instances
from edl.adapters.local.continuation import LocalContinuation, end_job
from edl.adapters.local.dashboard_viewer import viewer
from edl.adapters.local.instances import LocalInstance
from edl.adapters.local.job_identities import master_peer
from edl.adapters.local.job_log_files import log_file, master_log_tail
from edl.adapters.local.job_processes import end_supervision
from edl.adapters.local.job_store import START_DEADLINE_S, JobStore, StoredJob
from edl.adapters.local.launcher import LocalLauncher, supervisor_command
from edl.adapters.local.logs import LocalJobLogs
from edl.adapters.local.runtime import LocalRuntime
from edl.adapters.local.timelines import LocalTimelines
from edl.core.job_log import ERROR_LINES, LogChoice
from edl.core.job_status import (
    Failure,
    JobEvent,
    JobState,
    JobStatus,
    final_failure,
)
from edl.core.submission import Submission
from edl.ports.job_backend import (
    JobEntry,
    JobLogs,
    JobPlacement,
    MasterUnreachable,
    Say,
    ServedPage,
    Setting,
    StatusReport,
    silent,
)
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2
from edl_runtime.identity.page_key import PageKey
from edl_runtime.local import job_directory, output_reservation, supervision

if TYPE_CHECKING:
    from edl.adapters.job_service_client import JobServiceClient

_POLL_S = 0.05


Encode = Callable[[Submission], job_pb2.JobSpec]
T = TypeVar("T")


_END = {JobState.SUCCEEDED: "has succeeded", JobState.FAILED: "has failed"}


class LocalJobBackend:
    """The ``JobBackend`` of this machine.

    Args:
        store: the directories of jobs; jobs of other platforms in it are left alone.
        runtime: starts and finds the processes of a job.
        placement: fits submissions to the runtime.
        encode: the specification of a submission that is made now.
    """

    def __init__(
        self, store: JobStore, runtime: LocalRuntime, placement: JobPlacement, encode: Encode
    ) -> None:
        self.platform = runtime.platform
        self.location = str(store.root)
        self.placement = placement
        self.continuation = LocalContinuation(self, store, runtime)
        self.timelines = LocalTimelines(self._read, self._call)
        self._store = store
        self._runtime = runtime
        self._encode = encode
        self._clients: dict[str, JobServiceClient] = {}

    def list(self) -> Sequence[JobEntry]:
        return [
            it for it in self._store.entries() if self._store.platform(it.name) == self.platform
        ]

    def submit(self, job: Submission, say: Say = silent) -> bool:
        master = self._runtime.master_command()
        if self._store.create(job.name, self._encode(job), supervisor_command(), master):
            LocalLauncher(self._store, master).start(job.name)
            return True
        self._await_master(job.name)
        return False

    def status(self, name: str, *, ask: bool = True) -> StatusReport:
        # The record is read before the call: if the master is gone then, nothing more will come.
        stored = self._read(name)
        if ask and stored.master is not None and stored.master_is_alive:
            with contextlib.suppress(MasterUnreachable):
                message = self._call(stored.master.address, name, lambda it: it.status_message())
                return _report(stored, message, codec.decode_status(message), answered=True)
        message = self._store.status_message(name, stored.spec)
        return _report(stored, message, stored.status, answered=False)

    def events(self, name: str, after: int = 0) -> Sequence[JobEvent]:
        if (client := self._clients.get(name)) is not None:
            with contextlib.suppress(MasterUnreachable):
                return self._call(client.address, name, lambda it: it.events(after))
        self._read(name)
        return self._store.events(name, after)

    def logs(self, name: str, choice: LogChoice) -> JobLogs:
        self._read(name)
        return LocalJobLogs(self._store.path(name), choice)

    def change(self, name: str, setting: Setting) -> Setting:
        return self._call(self._running_master(name), name, lambda it: it.change(setting))

    def _running_master(self, name: str) -> str:
        """Return the address of the master of a job that is not over."""
        stored = self._read(name)
        if stored.is_over:
            raise EdlError(
                ErrorCode.JOB_OVER,
                f"{name} {_END.get(stored.status.state, f'was {stored.status.state.words}')}",
                where=str(stored.path),
                remedy="edl list --running lists the running jobs.",
            )
        if stored.master is None:
            raise MasterUnreachable(f"the master of job {name} does not listen yet")
        return stored.master.address

    def stop(self, name: str, reason: str, *, now: bool = False) -> None:
        stored = self._read(name)
        if now:
            self._runtime.check(stored.path)  # without its engine nothing of it would end
            # The supervisor first: it would start the next master.
            masters: list[LocalInstance] = [*end_supervision(self._store.path(name))]
            if stored.master is not None:
                masters.append(stored.master.process)
            instances.end(masters, 0.0)
            output_reservation.release(stored.spec.output, stored.path)
            return
        if stored.is_over:
            return
        if stored.master is None:
            raise MasterUnreachable(f"the master of job {name} does not listen yet")
        self._call(stored.master.address, name, lambda it: it.stop(reason))

    def finalize(self, name: str, status: JobStatus) -> JobStatus:
        if (client := self._clients.get(name)) is not None:
            with contextlib.suppress(MasterUnreachable, EdlError):
                # A master that has ended already needs no acknowledgement.
                client.acknowledge()
            self._disconnect(name)
        if status.state is JobState.SUCCEEDED:
            return status
        was_stopped = supervision.is_released(self._store.path(name))  # by edl stop --now
        if not status.state.is_final or (was_stopped and status.state is JobState.CANCELLED):
            status = self._end_lost_job(status)
        return replace(status, failure=final_failure(status, self.continuation.next_steps(status)))

    def delete(self, name: str) -> None:
        self._check(name)
        end_job(self._runtime, self._store.path(name), self._store.master(name))
        with contextlib.suppress(EdlError):  # a damaged description does not name the output
            output_reservation.release(self._read(name).spec.output, self._store.path(name))
        self._disconnect(name)
        self._store.delete(name)

    def reach(self, name: str) -> str:
        self._check(name)
        master = self._store.master(name)
        return master.address if master is not None and master.is_alive else ""

    def close(self) -> None:
        for name in list(self._clients):
            self._disconnect(name)

    @contextlib.contextmanager
    def serve_page(self, name: str, port: int) -> Iterator[ServedPage]:
        with viewer(self._read(name).path, port) as (url, process):
            link = _page_link(self._store.path(name), url)
            yield ServedPage(link, process.wait, lambda: process.poll() is None)

    def _check(self, name: str) -> None:
        """Raises: EdlError: JOB_NOT_FOUND."""
        if not self._store.has(name) or self._store.platform(name) != self.platform:
            raise self._store.unknown(name)

    def _read(self, name: str) -> StoredJob:
        self._check(name)
        return self._store.read(name)

    def _end_lost_job(self, status: JobStatus) -> JobStatus:
        """End what is left of a job without a master, and return its status with the reason."""
        ended = 0
        path = self._store.path(status.job)
        # One that cannot be killed, such as in a call of a dead file server, ends the rounds.
        while over := instances.end(self._store.runtime.workers(path), instances.WORKER_GRACE_S):
            ended += len(over)
        output_reservation.release(status.output, path)
        also = f"; {ended} of its workers were ended" if ended else ""
        if supervision.is_released(path):
            stopped = Failure("STOPPED", f"job {status.job} was ended at once{also}", status.job)
            return replace(status, state=JobState.CANCELLED, failure=status.failure or stopped)
        return replace(
            status,
            state=JobState.LOST,
            failure=Failure(
                code="MASTER_LOST",
                what=f"the master of job {status.job} is gone and left no final status{also}",
                where=str(log_file(path)),
                remedy="If the system killed it (out of memory?), correct that.",
                detail=master_log_tail(path, ERROR_LINES),
            ),
        )

    def _await_master(self, name: str) -> None:
        """Wait for the master of a job that another caller has created."""
        deadline = time.monotonic() + START_DEADLINE_S
        while True:
            stored = self._read(name)
            if stored.master is not None or stored.is_over:
                return
            if time.monotonic() > deadline:
                raise EdlError(
                    ErrorCode.MASTER_LOST,
                    f"the master of job {name} does not start",
                    where=str(log_file(self._store.path(name))),
                    remedy=f"edl logs {name} may show the reason.",
                )
            time.sleep(_POLL_S)

    def _call(self, address: str, name: str, call: Callable[[JobServiceClient], T]) -> T:
        client = self._clients.get(name)
        if client is None or client.address != address:
            from edl.adapters.job_service_client import JobServiceClient

            self._disconnect(name)
            peer = master_peer(self._store.path(name))
            client = self._clients[name] = JobServiceClient(address, peer)
        try:
            return call(client)
        except MasterUnreachable:
            self._disconnect(name)
            raise

    def _disconnect(self, name: str) -> None:
        if (client := self._clients.pop(name, None)) is not None:
            client.close()


def _report(
    stored: StoredJob, message: job_pb2.JobStatus, status: JobStatus, *, answered: bool
) -> StatusReport:
    keep_page_s = stored.spec.serving.keep_page_s
    # A master whose job is over may live a moment longer than its page.
    served = not status.state.is_over or keep_page_s > 0
    page = stored.master if served and stored.master_is_alive else None
    url = page.dashboard_url if page is not None else ""
    return StatusReport(
        status=status,
        answered=answered,
        location=str(stored.path),
        keep_page_s=keep_page_s,
        dashboard_url=url,
        page_link=lambda: _page_link(stored.path, url),
        description=lambda: codec.to_dict(stored.spec),
        details=lambda: {**codec.to_dict(message), "state": status.state.value},
    )


def _page_link(job_dir: Path, url: str) -> str:
    key = PageKey.read(job_dir / job_directory.PAGE)
    return key.link(url, time.time()) if key is not None and url else url
