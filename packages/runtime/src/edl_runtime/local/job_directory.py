"""Names inside a job's directory, which the client and the master both read and write.

The directory is ``$EDL_HOME/jobs/<name>`` (``~/.edl`` by default) on the machine that runs
the job's master.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from edl_runtime.files import read_regular
from edl_runtime.json_texts import parse_object

SPEC = "spec.json"
"""JobSpec as protobuf JSON, written by the client before anything starts."""

PLATFORM = "platform"
"""The platform that the job was submitted to, should the specification be damaged."""

MASTER = "master.json"
"""The running master: address, pid, process start time, dashboard_url, incarnation."""

MASTER_PROCESS = "master-process.json"
"""The process that holds the job's directory: pid, start_time; touched while a master starts."""

REQUESTS = "requests.json"
"""Stop and scale commands that the master has acknowledged; later masters carry them out, too."""

SUPERVISOR = "supervisor.json"
"""The commands of the job's supervisor and master; see ``edl_runtime.local.supervision``."""

SUPERVISION = "supervision.json"
"""The report of the job's supervisor: starts and exits of masters, and why it gave up."""

SUPERVISOR_LOCK = "supervisor.lock"
"""Held by the job's supervisor for as long as it lives; holds its process number."""

RESUME_LOCK = "resume.lock"
"""Held by the client that resumes the job."""

SNAPSHOTS = "snapshots"
"""The state from which the next master continues."""

SPLITS = "splits.jsonl"
"""The files of a stream, in the order in which the job has discovered them."""

CHECKPOINTS = "checkpoints"
"""Files on their way to a store of checkpoints, or from there."""

STATUS = "status.json"
"""JobStatus as protobuf JSON, replaced atomically about once a second and at the end."""

END = "end.json"
"""The final status, while what the job does not need after its end is being removed. Then the file
becomes ``status.json``; if the master fails before, the next one does that."""

RESERVE = ".reserve"
"""Space that a job reserves so that it can report a full disk; not needed after its end."""

EVENTS = "events.jsonl"
"""One Event as protobuf JSON on each line, appended as they happen."""

TIMELINE = "timeline.jsonl"
"""What workers did when, one JSON object on each line, in the order of their ends.

All have ``at`` (seconds since the epoch), ``seconds`` and ``worker``. Work on a task has ``task``
and ``outcome`` (done, failed, returned, lost, unfinished). The others have ``phases``: how many of
the seconds the worker spent where (input, compute, exchange, other, idle, loading)."""

FORMER_TIMELINE = "timeline.1.jsonl"
"""The lines before those, once there were too many for one file; earlier ones are gone."""

LOGS = "logs"
"""master.log and worker-<id>.log."""

TENSORBOARD = "tensorboard"
"""TensorBoard event files, unless the job names another place."""

INSTANCES = "instances"
"""One JSON file per process that the local platform started."""

IDENTITY = "identity"
"""Keys and certificates of the job's processes (docs/adr/0021); absent: the job is not secured."""

PAGE = "page"
"""What opens the job's page: its key, the token of its metrics, and which links have been used."""

STORES = "stores"
"""Credentials of object stores for the job's container, as the user has them."""

REPLICAS = "replicas"
"""Where workers of replicated training on one machine meet, in a folder for each generation."""

DIRECTORY_TAKEN = 75
"""Exit code of a master that found another one at work on its job (EX_TEMPFAIL)."""

NO_MASTER_PACKAGE = 69
"""Exit code of an interpreter that has no ``edl_master`` (EX_UNAVAILABLE)."""

PARTS = "parts"
"""Predictions of single tasks before they are joined."""

PARTS_NOTE_SUFFIX = "-joined"
"""Of the note next to the folder of parts, wherever the folder is."""

PARTS_NOTE = f"{PARTS}{PARTS_NOTE_SUFFIX}"
"""Which output was made from them, until the job is over."""

CONTAINER = "container.json"
"""Where the job's container is, if it has one: engine, name; and the process that waits for its end
on the machine: pid, start_time."""

CONTAINER_LOCK = "container.lock"
"""Held by that process, so that two never start a container for one job."""


def home() -> Path:
    """Return the root of all state on this machine.

    Raises:
        EdlError: USAGE; neither ``EDL_HOME`` nor the user's home folder is known.
    """
    try:
        return Path(os.environ.get("EDL_HOME") or Path.home() / ".edl")
    except RuntimeError:  # a container's user who is in no list, and has no $HOME
        # Here and not above: it imports gRPC, which supervisors live without.
        from edl_proto.errors import EdlError, ErrorCode

        raise EdlError(
            ErrorCode.USAGE,
            "the system knows no home folder of this user",
            where="EDL_HOME",
            remedy="Set EDL_HOME to a folder that only you can write.",
        ) from None


def jobs() -> Path:
    """Return the directory of all jobs of this user."""
    return home() / "jobs"


def job(name: str) -> Path:
    """Return the directory of one job; it need not exist."""
    return jobs() / name


def read_object(path: Path) -> dict[str, Any]:
    """Read the JSON object in a file; empty if the file is missing or damaged."""
    try:
        return parse_object(read_regular(path))
    except (OSError, ValueError):
        return {}
