"""Files of a job's directory: replaced whole or appended to, never half-written."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message

from edl_proto.errors import EdlError
from edl_proto.local import job_directory, process_identity, supervision
from edl_proto.local.job_status import FINAL_STATES
from edl_proto.v1 import error_pb2, job_pb2

_FULL = (errno.ENOSPC, errno.EDQUOT)

_LIFE_SIGN_EVERY_S = 1.0

_RESERVE = ".reserve"
_RESERVED_BYTES = 512 << 10
"""A status with full curves and a hundred workers is about a tenth of that."""


def is_full(error: OSError) -> bool:
    """Whether a write failed for lack of space."""
    return error.errno in _FULL


def storage_error(error: OSError, path: Path | str) -> EdlError:
    """What a failed write means for a person."""
    if is_full(error):
        return EdlError(
            error_pb2.DISK_FULL,
            f"there is no space left to write {path}",
            where=str(path),
            remedy="Free some space on that disk, or choose a place on another one.",
        )
    return EdlError(
        error_pb2.OUTPUT_UNWRITABLE,
        f"{path} cannot be written: {error.strerror or error}",
        where=str(path),
        remedy="Check that the place exists and that you may write there.",
    )


def replace_file(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Give a file a new content at once: a reader sees the old one or the new one.

    Args:
        path: the file; its directory exists.
        content: everything that it will hold.
        durable: also survive a loss of power.

    Raises:
        OSError: the file could not be written; it is as it was.
    """
    # Not by the process's number: in containers that share a folder all masters have the same.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    if durable:
        flush_directory(path.parent)


def flush_directory(path: Path) -> None:
    """Make names in a directory survive a loss of power."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def to_json(message: Message) -> str:
    """A message as the JSON that every reader of a job's directory expects: all fields named.

    In one line: indenting would take seven times as long, and a status is written every second.
    """
    return json_format.MessageToJson(
        message,
        always_print_fields_with_no_presence=True,
        preserving_proto_field_name=True,
        indent=None,
        ensure_ascii=False,
    )


class JobDirectory:
    """The directory of one job, held by one master at a time.

    Raises:
        EdlError: OUTPUT_UNWRITABLE or DISK_FULL for every method that writes.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held: int | None = None

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def hold(self, inherited: int | None = None) -> None:
        """Keep every other master out until this process ends.

        Args:
            inherited: what ``hand_on`` returned in an earlier program of this process.

        Raises:
            EdlError: JOB_EXISTS if another master has this directory.
        """
        if inherited is not None and os.path.samestat(os.fstat(inherited), self.path.stat()):
            os.set_inheritable(inherited, False)
            self._held = inherited
            return
        with self._writing():
            held = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            supervision.take_lock(held)
        except BlockingIOError:
            os.close(held)
            raise EdlError(
                error_pb2.JOB_EXISTS,
                "another master works on this job",
                where=str(self.path),
                remedy="Use another name, or wait until that job has ended.",
            ) from None
        self._held = held
        self._identify()

    def _identify(self) -> None:
        """Write down which process holds the directory: it may freeze before it listens.

        A full disk is no reason to end here; the lock counts.
        """
        pid = os.getpid()
        facts = {"pid": pid, "start_time": process_identity.start_time(pid) or 0}
        with contextlib.suppress(OSError):
            replace_file(
                self.path / job_directory.MASTER_PROCESS, json.dumps(facts, indent=2).encode()
            )

    @contextlib.contextmanager
    def life_signs(self) -> Iterator[None]:
        """Give a sign of life each second, while no status is written yet."""
        ended = threading.Event()

        def give() -> None:
            while not ended.wait(_LIFE_SIGN_EVERY_S):
                with contextlib.suppress(OSError):
                    os.utime(self.path / job_directory.MASTER_PROCESS)

        threading.Thread(target=give, name="life-signs", daemon=True).start()
        try:
            yield
        finally:
            ended.set()

    @property
    def is_over(self) -> bool:
        """Whether the job of the present ``spec.json`` has a final state."""
        try:
            spec, status = (self.path / name for name in (job_directory.SPEC, job_directory.STATUS))
            written_after = status.stat().st_mtime_ns >= spec.stat().st_mtime_ns
        except OSError:
            return False
        return written_after and self.read_status().state in FINAL_STATES

    def hand_on(self) -> int:
        """A file descriptor by which the next program of this process has the directory."""
        assert self._held is not None, "only what is held can be handed on"
        os.set_inheritable(self._held, True)
        return self._held

    def let_go(self) -> None:
        """Let another master in."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def read_spec(self) -> job_pb2.JobSpec:
        """What the user submitted.

        Raises:
            EdlError: JOB_NOT_FOUND or USAGE.
        """
        path = self.path / job_directory.SPEC
        try:
            return json_format.Parse(path.read_text(), job_pb2.JobSpec())
        except FileNotFoundError:
            raise EdlError(
                error_pb2.JOB_NOT_FOUND,
                f"there is no {job_directory.SPEC} in {self.path}",
                where=str(path),
                remedy="--job-dir names the directory that edl train, evaluate or predict made.",
            ) from None
        except (OSError, json_format.ParseError, UnicodeDecodeError) as error:
            raise EdlError(
                error_pb2.USAGE,
                f"{job_directory.SPEC} is not a job: {error}",
                where=str(path),
                remedy="Submit the job again.",
            ) from error

    def write_master(self, facts: Mapping[str, str | int]) -> None:
        """Where the running master is."""
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
                (self.path / _RESERVE).unlink(missing_ok=True)
                replace_file(path, content, durable=True)

    def read_requests(self) -> dict[str, Any]:
        """What ``write_requests`` wrote; empty if there is nothing."""
        try:
            found = json.loads((self.path / job_directory.REQUESTS).read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def reserve(self) -> None:
        """Keep some space, so that a job whose disk is full can still say so."""
        with self._writing(_RESERVE):
            replace_file(self.path / _RESERVE, bytes(_RESERVED_BYTES))

    def former_port(self) -> int:
        """The port of the master that last wrote where it is; 0 if none did."""
        try:
            facts = json.loads((self.path / job_directory.MASTER).read_bytes())
            return int(str(facts["address"]).rpartition(":")[2])
        except (OSError, ValueError, KeyError, TypeError):
            return 0

    def last_seen(self) -> float | None:
        """When an earlier master last wrote its status, in seconds since the epoch.

        None if there was none, or if its job had ended: then this is another one.
        """
        try:
            at = (self.path / job_directory.STATUS).stat().st_mtime
        except OSError:
            return None
        return None if self.read_status().HasField("error") else at

    def read_status(self) -> job_pb2.JobStatus:
        """The last status that was written; an empty one if there is none."""
        try:
            return json_format.Parse(
                (self.path / job_directory.STATUS).read_text(), job_pb2.JobStatus(), True
            )
        except (OSError, json_format.ParseError, UnicodeDecodeError):
            return job_pb2.JobStatus()

    def write_status(self, status: job_pb2.JobStatus, *, final: bool = False) -> None:
        """The present state of the job; the final one is safe on the disk when this returns."""
        if final:
            (self.path / _RESERVE).unlink(missing_ok=True)
        with self._writing(job_directory.STATUS):
            replace_file(self.path / job_directory.STATUS, to_json(status).encode(), durable=final)

    @contextlib.contextmanager
    def _writing(self, name: str = "") -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise storage_error(error, self.path / name) from error


def rfc3339(at_s: float) -> str:
    """Seconds since the epoch as a time for people and machines, in UTC."""
    milliseconds = int(at_s * 1000) % 1000
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(at_s))}.{milliseconds:03d}Z"
