"""Bodies of workers: how they are started, and what becomes of those of an earlier master."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from edl_master.adapters.processes import LocalProcesses, limit_threads
from edl_master.config import Config
from edl_master.core.events import BodyExited
from edl_master.core.names import WorkerId
from edl_master.core.platform import LiveBody, Platform
from edl_proto import jobdir

log = logging.getLogger(__name__)

MakePlatform = Callable[[Config, Callable[[], str]], Platform]
"""Makes the platform of a job; the master's address is known when the first body starts."""

_KILLED_S = 60.0
"""How long the end of a killed body may take to be seen."""


def local_processes(config: Config, address: Callable[[], str]) -> Platform:
    """Workers as processes of this machine."""

    def command(worker: WorkerId, attempt: int) -> Sequence[str]:
        # -P: a file in the user's directory must not stand in for a module of the same name.
        python = [config.python, "-P", "-m", "edl_worker"]
        return [*python, "--master", address(), "--worker-id", str(worker)]

    environment = {"PYTHONUNBUFFERED": "1", **config.environ}
    return LocalProcesses(
        command,
        limit_threads(environment, config.workers_max),
        config.job_dir / jobdir.LOGS,
        config.job_dir / jobdir.PODS,
    )


def take_over(platform: Platform, *, keep: bool) -> tuple[LiveBody, ...]:
    """Find what an earlier incarnation of the master left; return the bodies that may stay.

    Before the job begins, so that no worker ever has two bodies without anybody knowing.

    Args:
        platform: where bodies are.
        keep: they may register with this master; otherwise all are ended.
    """
    found = platform.adopt()
    if keep:
        return found
    for body in found:
        log.info("ending %s of worker %d, left by an earlier master", body.body, body.worker)
        platform.kill(body.worker)
    ended = 0
    deadline = time.monotonic() + _KILLED_S
    while ended < len(found) and (wait_s := deadline - time.monotonic()) > 0:
        ended += sum(isinstance(each, BodyExited) for each in platform.observe(wait_s))
    return ()


def exit_reason(exited: BodyExited) -> str:
    """In one word, for metrics."""
    if exited.preempted:
        return "preempted"
    if exited.signal is not None:
        return "signal"
    return "left" if exited.exit_code == 0 else "failed"
