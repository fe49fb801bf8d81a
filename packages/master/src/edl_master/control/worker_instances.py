"""Instances of workers: their start, and the adoption of those of an earlier master."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from edl_master.adapters.processes import LocalProcesses, limit_threads
from edl_master.config.gpus import check_gpus, no_gpu_in_container
from edl_master.config.job_config import Config
from edl_master.core.events import InstanceExited
from edl_master.core.identifiers import WorkerId
from edl_master.core.platform import LiveInstance, Platform
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.identity.names import Role
from edl_runtime.local import gpus, job_directory, process_environment

log = logging.getLogger(__name__)

PlatformFactory = Callable[[Config, Callable[[], str]], Platform]
"""Makes the platform of a job; the master's address is known when the first instance starts."""

_KILLED_S = 60.0
"""How long the end of a killed instance may go unnoticed."""


def local_processes(config: Config, address: Callable[[], str]) -> Platform:
    """Make the platform that runs workers as processes of this machine.

    Raises:
        EdlError: USAGE; there are more workers than GPUs, or a container has none.
    """
    check_gpus(config.gpus, config.workers_max, "--num-workers")
    wanted = config.spec.gpus in ("each", "shared")
    if config.spec.platform == "docker" and wanted and not config.gpus.names:
        raise no_gpu_in_container(config.spec)  # by default a container is to have none

    def command(worker: WorkerId) -> Sequence[str]:
        # -P: a file in the user's directory must not stand in for a module of the same name.
        python = [config.python, "-P", "-m", "edl_worker"]
        identity = config.identity_arguments(Role.WORKER, worker)
        return [*python, "--master", address(), "--worker-id", str(worker), *identity]

    limits = limit_threads(config.environ, config.workers_max)
    changes = {name: value for name, value in limits.items() if name not in config.environ}
    if "PYTHONUNBUFFERED" not in config.environ:
        changes["PYTHONUNBUFFERED"] = "1"
    changes |= process_environment.order_sets(config.environ)
    changes["EDL_REPLICA_DIR"] = str(config.job_dir / job_directory.REPLICAS)
    if config.spec.platform != "docker":
        # A worker observes the supervisor from its first second on (docs/adr/0016). In a container
        # it could start none.
        changes["EDL_JOB_DIR"] = str(config.job_dir)
    if config.spec.gpus == "none":
        changes[gpus.VISIBLE] = gpus.NONE
    return LocalProcesses(
        command,
        process_environment.change(config.environ, changes),
        config.job_dir / job_directory.LOGS,
        config.job_dir / job_directory.INSTANCES,
        gpus=config.gpus,
    )


def platform_for_job(config: Config, address: Callable[[], str]) -> Platform:
    """Return the platform that the job names.

    Raises:
        EdlError: USAGE; this master has no platform of that name.
    """
    match config.spec.platform:
        case "processes" | "docker":  # a whole job runs in one container (docs/adr/0030)
            return local_processes(config, address)
        case other:
            raise EdlError(
                ErrorCode.USAGE,
                f"unknown platform {other!r}",
                where=job_directory.SPEC,
                remedy="Use the same version of edl for client and master.",
            )


def adopt_instances(platform: Platform, *, keep: bool) -> tuple[LiveInstance, ...]:
    """Find what an earlier incarnation of the master left; return the instances that may stay.

    Before the job begins, so that no worker ever has two instances unnoticed.

    Args:
        platform: where instances are.
        keep: they may register with this master; otherwise all are ended.
    """
    found = platform.adopt()
    if keep:
        return found
    for instance in found:
        log.info(
            "ending %s of worker %d, left by an earlier master", instance.instance, instance.worker
        )
        platform.kill(instance.worker)
    ended = 0
    deadline = time.monotonic() + _KILLED_S
    while ended < len(found) and (wait_s := deadline - time.monotonic()) > 0:
        ended += sum(isinstance(each, InstanceExited) for each in platform.observe(wait_s))
    return ()


def exit_reason(exited: InstanceExited) -> str:
    """Return the reason of an exit in one word, for metrics."""
    if exited.preempted:
        return "preempted"
    if exited.signal is not None:
        return "signal"
    return "left" if exited.exit_code == 0 else "failed"
