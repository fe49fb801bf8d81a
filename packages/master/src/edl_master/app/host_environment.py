"""The environment of a master: a machine, a supervisor, or a pod."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from edl_master.control.worker_instances import PlatformFactory, platform_for_job
from edl_master.server_group.processes import ServerLauncher, local_servers
from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.identity.folder import IdentityFolder


def _incarnation() -> str:
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(2)}"


@dataclass(frozen=True, slots=True)
class HostEnvironment:
    """The place of one master; the defaults are those of a machine.

    Attributes:
        platform_factory: makes the platform that runs the workers' instances.
        launch_servers: starts the parameter servers.
        server_host: address that these listen on; empty: that of the master.
        incarnation: of the master; no other one of the job has it, and later ones sort after it.
        stream_port: of direct parameter connections; 0 for any.
        host: by which workers and clients reach the master; empty: by the address of its listener.
        identities: keys and certificates of the job's processes, if they are not in the job's
            directory.
        is_superseded: whether a later master of the job was seen. The lock of the job's directory
            keeps a second one away on a machine.
        confirm: asks whether this is still the newest master of the job; may wait for long.
        keeps_instances: whether instances wait for the next master after a signal.
        api_requests: requests to the API server of Kubernetes so far, by verb and code.
    """

    platform_factory: PlatformFactory = platform_for_job
    launch_servers: ServerLauncher = local_servers
    server_host: str = ""
    incarnation: str = field(default_factory=_incarnation)
    stream_port: int = 0
    host: str = ""
    identities: IdentityFolder | None = None
    is_superseded: Callable[[], bool] = lambda: False
    confirm: Callable[[], bool] = lambda: True
    keeps_instances: Callable[[], bool] = lambda: True
    api_requests: Callable[[], Mapping[tuple[str, int], int]] = dict


def reachable(host: str, *, bare: bool = False) -> str:
    """Return the address that a listener on ``host`` has for programs of the same machine."""
    local = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{local}]" if ":" in local and not bare else local


def stale_master(job: str) -> EdlError:
    """Return the error that says that a later master has taken over the job."""
    return EdlError(
        ErrorCode.STALE_INCARNATION,
        f"another master of {job} has taken over; this one writes no result",
        where="the master",
        remedy="The later master continues the job.",
    )
