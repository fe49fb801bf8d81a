"""Every setting of a worker, with its unit and its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from edl_proto.errors import EdlError, ErrorCode


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that do not come with the job; they never change while the worker runs."""

    master: str
    """host:port of the job's master."""

    worker_id: int

    master_wait_s: float = 60.0
    """How long a master that cannot be reached is waited for. It may be starting again; but a
    worker without a master must not stay for ever. ``EDL_MASTER_WAIT_S``."""

    server_wait_s: float = 15.0
    """How long a parameter server is waited for that cannot be reached while the master can. The
    master replaces one that is gone within seconds; so the way there is broken, and others can do
    the task. The worker leaves and says why, before it is suspected of hanging."""

    call_timeout_s: float = 10.0
    """Deadline of a call beyond the time that it is allowed to wait at the master."""

    ready_timeout_s: float = 60.0
    """Deadline of the call that describes the model: the master may compile its update loops."""

    slowest_bytes_per_s: float = 5e6
    """Slowest transfer of parameters that still counts as working; adds to the deadline."""

    task_wait_s: float = 1.0
    """How long one request for a task may wait at the master. Short, because between two
    requests the worker checks whether it was asked to leave."""

    permit_wait_s: float = 1.0
    """The same for a step permit."""

    prefetch_lead_s: float = 1.0
    """The next lease is fetched when about so much work is left: pipelines take less."""

    leave_timeout_s: float = 2.0
    """How long a leaving worker tries to return its leases."""

    grace_margin_s: float = 1.5
    """Time before the end of the grace period at which a worker that is stuck in user code
    returns its leases and ends anyway."""

    metrics_host: str = "127.0.0.1"
    """Where Prometheus finds this worker. ``EDL_METRICS_HOST``."""

    metrics_port: int = 0
    """0: any free port, which the master learns. ``EDL_METRICS_PORT``."""

    replica_dir: str = ""
    """Where the workers of a job that train in step meet if all are on this machine; empty: they
    are not. ``EDL_REPLICA_DIR``."""

    ring_host: str = ""
    """Address at which the others reach this worker where they share no memory; empty: they do.
    ``EDL_RING_HOST``."""

    ring_port: int = 0
    """0: any free port, which the master tells the others. ``EDL_RING_PORT``."""

    identity: str = ""
    """File by which this worker proves who it is, and knows its master; empty: neither is done."""

    job_dir: str = ""
    """Where the job's supervisor has its lock; empty if that is another machine.
    ``EDL_JOB_DIR``."""


def from_environment(
    master: str, worker_id: int, environ: Mapping[str, str], identity: str = ""
) -> Settings:
    """Return the settings from the command line and ``EDL_*`` variables.

    Raises:
        EdlError: a variable has no sensible value.
    """
    default = Settings(master, worker_id, identity=identity)
    return replace(
        default,
        master_wait_s=_number(environ, "EDL_MASTER_WAIT_S", default.master_wait_s),
        metrics_host=environ.get("EDL_METRICS_HOST") or default.metrics_host,
        metrics_port=int(_number(environ, "EDL_METRICS_PORT", default.metrics_port)),
        replica_dir=environ.get("EDL_REPLICA_DIR", default.replica_dir),
        ring_host=environ.get("EDL_RING_HOST", default.ring_host),
        ring_port=int(_number(environ, "EDL_RING_PORT", default.ring_port)),
        job_dir=environ.get("EDL_JOB_DIR", default.job_dir),
    )


def _number(environ: Mapping[str, str], name: str, default: float) -> float:
    text = environ.get(name, "")
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise EdlError(
            ErrorCode.USAGE,
            f"{name} must be a number that is not negative, not {text!r}",
            where=f"environment variable {name}",
            remedy=f"Unset it, or set it to a number such as {default:g}.",
        )
    return value
