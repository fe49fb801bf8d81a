"""Processes and containers of a job on this machine."""

from __future__ import annotations

import signal
from pathlib import Path

from edl.adapters.local import instances
from edl.adapters.local.instances import LocalInstance
from edl_runtime.files import read_regular
from edl_runtime.json_texts import parse_object
from edl_runtime.local import job_directory, process_identity, supervision


def recorded_workers(path: Path) -> list[LocalInstance]:
    """Return the processes of this machine that the master of the job in ``path`` has recorded."""
    found: list[LocalInstance] = []
    for record in sorted((path / job_directory.INSTANCES).glob("*.json")):
        try:
            facts = parse_object(read_regular(record))
            found.append(process_identity.Process(int(facts["pid"]), int(facts["start_time"])))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found


def end_supervision(path: Path) -> list[process_identity.Process]:
    """Prevent a restart of the job's master, and end its supervisor.

    Returns:
        The job's master, which may not listen yet; the caller ends it.
    """
    supervision.release(path)
    known = supervision.master_process(path)
    masters = [process_identity.Process(*known)] if known else []
    pid = supervision.supervisor_pid(path)
    if pid is not None and (found := process_identity.find(pid)) is not None:
        found.send(signal.SIGSTOP)  # it starts no other one meanwhile
        masters += [child for child in process_identity.children(pid) if child not in masters]
        instances.end([found], 0.0)
    return masters
