"""The admission of a worker to a job."""

from __future__ import annotations

from dataclasses import dataclass

from edl_worker.core.job import JobDescription


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """The identity of this process: which worker it is.

    Attributes:
        instance: identity of this process, or of its container.
    """

    worker_id: int
    instance: str
    host: str
    pid: int


@dataclass(frozen=True, slots=True)
class Registration:
    """The master's answer to a worker that registers.

    Attributes:
        metrics_token: the token that gives access to this worker's metrics; empty: nothing does.
        open_metrics: whether they are served to anyone who reaches the port.
    """

    job: JobDescription
    heartbeat_every_s: float
    metrics_token: str = ""
    open_metrics: bool = False


@dataclass(frozen=True, slots=True)
class ShardAddress:
    """A parameter server, and its bytes ``start`` to ``stop`` of a payload of parameters."""

    address: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class JobAdmission:
    """The master's answer to a worker that has described its model.

    Attributes:
        send_initial_values: this worker's initial values may become those of the job.
        layout_fingerprint: identifies the layout of payloads in later requests.
        shards: the parameter servers, by shard; empty: the master holds the parameters.
    """

    send_initial_values: bool
    layout_fingerprint: str
    shards: tuple[ShardAddress, ...] = ()
