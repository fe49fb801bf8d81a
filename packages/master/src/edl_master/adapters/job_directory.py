"""Files of a job's directory: replaced whole or appended to, never half-written."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message

from edl_master.adapters.job_lock import JobLock
from edl_master.adapters.storage_errors import is_full, storage_error
from edl_master.core.identifiers import WorkerState
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2
from edl_runtime.files import replace_file
from edl_runtime.local import job_directory
from edl_runtime.local.job_status import FINAL_STATES

_RESERVED_BYTES = 512 << 10
"""A status with full curves and a hundred workers is about a tenth of that."""


@dataclass(frozen=True, slots=True)
class LastSeen:
    """The last sign of an earlier master.

    Attributes:
        at_s: seconds since the epoch, by a clock that may have been set since.
        job_s: seconds of the job, as its status counts them.
        records_trained: records of applied minibatches.
        records_replayed: records computed again.
        preemptions, worker_failures: ends of workers.
        running: attempt of each worker that ran.
    """

    at_s: float
    job_s: float
    records_trained: int = 0
    records_replayed: int = 0
    preemptions: int = 0
    worker_failures: int = 0
    running: Mapping[int, int] = field(default_factory=dict)


def to_json(message: Message) -> str:
    """Convert a message to the JSON of the job's directory, which names all fields.

    In one line: indenting would take seven times as long, and a status is written every second.
    """
    return json_format.MessageToJson(
        message,
        always_print_fields_with_no_presence=True,
        preserving_proto_field_name=True,
        indent=None,
        ensure_ascii=False,
    )


_RUNNING = (WorkerState.LOADING, WorkerState.READY, WorkerState.WORKING, WorkerState.LOST)
"""A worker in another state has no instance, or one that was asked to leave."""

_OWN_FILES = (
    job_directory.MASTER,
    job_directory.MASTER_PROCESS,
    job_directory.STATUS,
    job_directory.END,
    job_directory.REQUESTS,
    job_directory.RESERVE,
    job_directory.PARTS_NOTE,
)
"""Files that only masters write."""


class JobDirectory:
    """The directory of one job, whose ``lock`` one master holds at a time.

    Raises:
        EdlError: OUTPUT_UNWRITABLE or DISK_FULL for every method that writes.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = JobLock(path)

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def remove_drafts(self) -> None:
        """Remove what a killed master left of files that it was replacing."""
        for name in _OWN_FILES:
            for draft in self.path.glob(f".{name}.*.tmp"):
                draft.unlink(missing_ok=True)
        for draft in (self.path / job_directory.INSTANCES).glob(".*.tmp"):
            draft.unlink(missing_ok=True)

    @property
    def is_over(self) -> bool:
        """Whether the job of the present ``spec.json`` has a final state."""
        try:
            spec, status = (self.path / name for name in (job_directory.SPEC, job_directory.STATUS))
            written_after = status.stat().st_mtime_ns >= spec.stat().st_mtime_ns
        except OSError:
            return False
        return written_after and self.read_status().state in FINAL_STATES

    def read_spec(self) -> job_pb2.JobSpec:
        """Return the job that the user submitted. Raises: EdlError: JOB_NOT_FOUND or USAGE."""
        path = self.path / job_directory.SPEC
        try:
            return json_format.Parse(path.read_text(), job_pb2.JobSpec())
        except FileNotFoundError:
            raise EdlError(
                ErrorCode.JOB_NOT_FOUND,
                f"there is no {job_directory.SPEC} in {self.path}",
                where=str(path),
                remedy="--job-dir names the directory that edl train, evaluate or predict made.",
            ) from None
        except (OSError, json_format.ParseError, UnicodeDecodeError) as error:
            raise EdlError(
                ErrorCode.USAGE,
                f"{job_directory.SPEC} is not a job: {error}",
                where=str(path),
                remedy="Submit the job again.",
            ) from error

    def write_master(self, facts: Mapping[str, str | int]) -> None:
        """Write the address of the running master."""
        with self._writing(job_directory.MASTER):
            replace_file(
                self.path / job_directory.MASTER, json.dumps(dict(facts), indent=2).encode()
            )

    def write_requests(self, facts: Mapping[str, Any]) -> None:
        """Replace ``requests.json``, and return when it is safe on the disk.

        On a full disk the reserved space is used: a job must be stoppable there, too.
        """
        path, content = self.path / job_directory.REQUESTS, json.dumps(facts, indent=2).encode()
        with self._writing(job_directory.REQUESTS):
            try:
                replace_file(path, content, durable=True)
            except OSError as error:
                if not is_full(error):
                    raise
                (self.path / job_directory.RESERVE).unlink(missing_ok=True)
                replace_file(path, content, durable=True)

    def read_requests(self) -> dict[str, Any]:
        """Return what ``write_requests`` wrote; empty if it has written nothing."""
        try:
            found = json.loads((self.path / job_directory.REQUESTS).read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def reserve(self) -> None:
        """Keep some space, so that a job whose disk is full can still say so."""
        with self._writing(job_directory.RESERVE):
            replace_file(self.path / job_directory.RESERVE, bytes(_RESERVED_BYTES))

    def former_port(self, fact: str = "address") -> int:
        """Return a port of the master that last wrote where it is; 0 if none did.

        Args:
            fact: ``dashboard_url`` for that of the page.
        """
        try:
            facts = json.loads((self.path / job_directory.MASTER).read_bytes())
            return int(str(facts[fact]).rstrip("/").rpartition(":")[2])
        except (OSError, ValueError, KeyError, TypeError):
            return 0

    def last_seen(self) -> LastSeen | None:
        """Return when an earlier master last wrote its status.

        None if there was none, or if the job had ended meanwhile: the time until it was resumed
        does not count.
        """
        try:
            at_s = (self.path / job_directory.STATUS).stat().st_mtime
        except OSError:
            return None
        status = self.read_status()
        if status.HasField("error") or not status.incarnation:
            return None
        return LastSeen(
            at_s,
            status.seconds,
            int(status.records_trained),
            int(status.records_replayed),
            status.preemptions,
            status.worker_failures,
            {each.id: each.restarts for each in status.workers if each.state in _RUNNING},
        )

    def read_status(self) -> job_pb2.JobStatus:
        """Return the last status that was written; an empty one if there is none."""
        return _status_in(self.path / job_directory.STATUS) or job_pb2.JobStatus()

    def write_status(self, status: job_pb2.JobStatus, *, final: bool = False) -> None:
        """Write the present status of the job; the final one is durable when this returns."""
        if final:
            (self.path / job_directory.RESERVE).unlink(missing_ok=True)
        with self._writing(job_directory.STATUS):
            replace_file(self.path / job_directory.STATUS, to_json(status).encode(), durable=final)
        if final:
            (self.path / job_directory.END).unlink(missing_ok=True)

    def write_end(self, status: job_pb2.JobStatus) -> None:
        """Write the final status durably, before anything of the job is removed."""
        (self.path / job_directory.RESERVE).unlink(missing_ok=True)
        with self._writing(job_directory.END):
            replace_file(self.path / job_directory.END, to_json(status).encode(), durable=True)

    def read_end(self) -> job_pb2.JobStatus | None:
        """Return what ``write_end`` wrote, if that master died before it wrote the status."""
        return _status_in(self.path / job_directory.END)

    @contextlib.contextmanager
    def _writing(self, name: str = "") -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise storage_error(error, self.path / name) from error


def _status_in(path: Path) -> job_pb2.JobStatus | None:
    try:
        return json_format.Parse(path.read_text(), job_pb2.JobStatus(), True)
    except (OSError, json_format.ParseError, UnicodeDecodeError):
        return None
