"""The identity of this process: which instance of which worker it is."""

from __future__ import annotations

import os
import socket
import time

from edl_runtime.local import process_identity
from edl_worker.core.registration import WorkerIdentity


def identity(worker_id: int) -> WorkerIdentity:
    """Return the identity of this process; the platform uses the same name for the instance."""
    host, pid = socket.gethostname(), os.getpid()
    if instance := os.environ.get("EDL_INSTANCE"):  # of a container
        return WorkerIdentity(worker_id, instance, host, pid)
    started = process_identity.start_time(pid) or time.time_ns()  # the latter without /proc
    return WorkerIdentity(worker_id, process_identity.instance_name(pid, started), host, pid)
