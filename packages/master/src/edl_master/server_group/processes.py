"""The parameter servers of a master: started, observed, and ended together.

If one of them is lost, the master rolls back to the last snapshot (``recovery.restart``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from edl_master.adapters.processes import limit_threads
from edl_master.adapters.server_processes import ServerProcesses
from edl_master.config.job_config import Config
from edl_master.core.identifiers import CHECKPOINTS, SNAPSHOTS, Version
from edl_master.recovery.restart import RestartCount
from edl_master.server_group.group import ParameterServerGroup
from edl_proto.identity.names import Role
from edl_proto.transport import endpoints
from edl_proto.v1 import job_pb2
from edl_runtime.local import job_directory

_SILENCE_S = 5.0
"""A server without a heartbeat for so long is frozen or cut off: it misses ten of them. A busy
server sends heartbeats, and losing a server costs the job some seconds. New servers start fast
enough that the next gradient is applied well within 15 s."""

_HELD_UP_S = 2.0
"""A longer time between two observations means that the master was held up: the deadlines of its
servers are extended."""


class ServerInstances(Protocol):
    """The processes or pods of all servers, in their order."""

    @property
    def pids(self) -> tuple[int, ...]:
        """The process numbers of the servers; 0 for pods."""

    @property
    def pending(self) -> tuple[str, ...]:
        """The reasons why servers are not placed yet, in the platform's words; empty: all are."""

    def close(self, within_s: float) -> None:
        """End all of them; those that have not ended in time are killed."""


Arguments = Callable[[int], list[str]]
"""Of ``python -m edl_master.parameter_server``, by number, without where its identity is."""

ServerLauncher = Callable[[Config, Arguments, Callable[[int, str], None]], ServerInstances]
"""Starts all servers; calls back with the number of one that ended by itself, and how."""


def local_servers(
    config: Config, arguments: Arguments, on_end: Callable[[int, str], None]
) -> ServerInstances:
    """Return servers as processes of the master's machine."""
    count = config.parameter_servers

    folders: dict[int, Path] = {}

    def with_identity(server: int) -> list[str]:
        identity = config.identity_arguments(Role.SERVER, server)
        if identity:
            folders[server] = Path(identity[-1]).parent
        return [*arguments(server), *identity]

    def clean_up(server: int) -> None:
        # A server ends at once when its master's pipe closes, or is killed.
        if server in folders:
            endpoints.remove_socket(folders[server])

    return ServerProcesses(
        config.python,
        count,
        with_identity,
        limit_threads(config.environ, count),
        config.job_dir / job_directory.LOGS,
        on_end,
        clean_up,
    )


class ParameterServers:
    """The servers of one incarnation.

    Args:
        config: of the job, with at least one server.
        incarnation: of the master.
        began_at: parameter version of the checkpoint; None: the beginning.
        restore_from: the checkpoint.
        launch: starts them.
    """

    def __init__(
        self,
        config: Config,
        incarnation: str,
        began_at: Version | None,
        restore_from: Path | None,
        launch: ServerLauncher = local_servers,
    ) -> None:
        self._launch = launch
        places = {SNAPSHOTS: config.job_dir / job_directory.SNAPSHOTS}
        if config.checkpoint_dir is not None:
            places[CHECKPOINTS] = config.checkpoint_dir
        self._config = config
        self._incarnation = incarnation
        self._began_at = began_at
        self._restarts = RestartCount.take()
        self._lost = ""
        self._checked_at = time.monotonic()
        self._processes: ServerInstances | None = None
        self.group = ParameterServerGroup(
            config.spec,
            config.parameter_servers,
            incarnation,
            places,
            str(restore_from or ""),
        )

    def start(self, master: str, host: str) -> None:
        """Start all of them.

        Args:
            master: where they reach the master.
            host: address that they listen on.
        """

        def arguments(server: int) -> list[str]:
            to_master = ["--master", master, "--incarnation", self._incarnation]
            return [*to_master, "--server", str(server), "--host", host]

        self._processes = self._launch(self._config, arguments, self.mark_lost)

    def check(self) -> str:
        """Return how a server was lost, in words; empty while all of them run."""
        now = time.monotonic()
        if now - self._checked_at > _HELD_UP_S:
            self.group.extend_deadlines()
        self._checked_at = now
        if (server := self.group.silent(_SILENCE_S)) is not None:
            self.mark_lost(server, f"has been silent for {_SILENCE_S:.0f} s")
        return self._lost

    def mark_lost(self, server: int, how: str) -> None:
        """Remember that a server is lost; the first one is reported."""
        self._lost = self._lost or f"Parameter server {server} {how}"

    def prepare_rollback(self) -> None:
        """End all servers, so that others can continue from the last snapshot.

        Raises:
            EdlError: WORKER_CRASH_LOOP; too many restarts from that snapshot.
        """
        self._restarts.prepare_rollback(
            self._began_at,
            self._lost,
            "parameter servers",
            "See logs/server-N.log in the job's directory, and whether the machine has the memory "
            "for parameters and optimizer slots.",
        )
        self.close(0)

    def status(self) -> list[job_pb2.ParameterServerStatus]:
        """Return each server as the job's status has it."""
        addresses = self.group.addresses()
        there = "gone" if self.group.over else "serving"
        pids = self._processes.pids if self._processes else ()
        pending = self._processes.pending if self._processes else ()
        return [
            job_pb2.ParameterServerStatus(
                id=number,
                state=there if number in addresses else "starting",
                address=addresses.get(number, ""),
                pid=pid,
                restarts=self._restarts.total,
                pending=waits,
            )
            for number, (pid, waits) in enumerate(zip(pids, pending, strict=True))
        ]

    def close(self, within_s: float = 3.0) -> None:
        """End the command log and all processes."""
        self.group.close()
        if self._processes is not None:
            self._processes.close(within_s)
