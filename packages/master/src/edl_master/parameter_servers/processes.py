"""The parameter servers of a master: started, watched, and given up together.

A server that dies takes a part of every minibatch since the last snapshot with it. The whole
incarnation falls back to that snapshot (docs/adr/0010): the master begins anew in its own process,
with the same number and children, as a master that was killed is begun anew by its supervisor.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from edl_master.adapters.processes import limit_threads
from edl_master.adapters.server_processes import ServerProcesses
from edl_master.config import Config
from edl_master.control.job_controller import CHECKPOINTS, SNAPSHOTS
from edl_master.core.identifiers import Version
from edl_master.parameter_servers.group import Crew
from edl_proto.errors import EdlError
from edl_proto.local import job_directory
from edl_proto.v1 import error_pb2, job_pb2

BEGIN_AGAIN = 75
"""What a master's work comes to when it has to fall back; no exit code of a process."""

_SILENCE_S = 5.0
"""A server that has said nothing for so long is frozen or cut off: ten of its heartbeats. A server
that has only much to do is not silent, and losing one costs the job some seconds. With what new
servers take to start, the next gradient is applied well within 15 s."""

_HELD_UP_S = 2.0
"""Between two looks of the master: then it was held up itself, and nobody is to blame."""

_FALLS = "EDL_MASTER_FALLS"
"""Carries ``Falls`` to the next incarnation of the same process."""

_HOLD = "EDL_MASTER_HOLD"
"""Carries the hold on the job's directory likewise."""

_MOST_FALLS = 5
"""From one and the same snapshot: something ends the servers whenever they begin."""


@dataclass(frozen=True, slots=True)
class Falls:
    """How often this master has fallen back.

    Attributes:
        all: since its process began.
        in_a_row: from one and the same version.
        version: parameter version that it went on from the last time; -1 for the beginning.
    """

    all: int = 0
    in_a_row: int = 0
    version: int = -1

    @classmethod
    def read(cls, environ: Mapping[str, str] = os.environ) -> Falls:
        numbers = environ.get(_FALLS, "").split()
        return cls(*map(int, numbers)) if len(numbers) == 3 else cls()

    def next(self, version: Version | None) -> Falls:
        """One more, of an incarnation that went on from this version."""
        now = -1 if version is None else version
        again = self.all > 0 and now == self.version
        return Falls(self.all + 1, self.in_a_row + 1 if again else 1, now)


def begin_again(held: int) -> NoReturn:
    """Run this process's program from the start; what is open is closed, children stay.

    Args:
        held: file descriptor that holds the job's directory, for the next incarnation: nobody
            else may take this for a master that has ended.
    """
    os.environ[_HOLD] = str(held)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def inherited_hold() -> int | None:
    """What ``begin_again`` was given in the same process; None if it has just been started."""
    held = os.environ.pop(_HOLD, "")
    return int(held) if held else None


class ParameterServers:
    """The servers of one incarnation.

    Args:
        config: of the job, with at least one server.
        incarnation: of the master.
        began_at: parameter version of the checkpoint; None: the beginning.
        restore_from: the checkpoint.
    """

    def __init__(
        self, config: Config, incarnation: str, began_at: Version | None, restore_from: Path | None
    ) -> None:
        places = {SNAPSHOTS: config.job_dir / job_directory.SNAPSHOTS}
        if config.checkpoint_dir is not None:
            places[CHECKPOINTS] = config.checkpoint_dir
        self._config = config
        self._incarnation = incarnation
        self._began_at = began_at
        self._falls = Falls.read()
        self._lost = ""
        self._looked_at = time.monotonic()
        self._processes: ServerProcesses | None = None
        self.crew = Crew(
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

        count = self._config.parameter_servers
        self._processes = ServerProcesses(
            count,
            arguments,
            limit_threads(self._config.environ, count),
            self._config.job_dir / job_directory.LOGS,
            lambda server, how: self.lose(server, f"ended by {how}"),
        )

    def look(self) -> str:
        """What became of a server that is gone or silent; empty while all are there."""
        now = time.monotonic()
        if now - self._looked_at > _HELD_UP_S:
            self.crew.excuse()
        self._looked_at = now
        if (server := self.crew.silent(_SILENCE_S)) is not None:
            self.lose(server, f"has been silent for {_SILENCE_S:.0f} s")
        return self._lost

    def lose(self, server: int, how: str) -> None:
        """A server is gone; the first one that is, is told."""
        self._lost = self._lost or f"Parameter server {server} {how}"

    def prepare_to_fall(self) -> None:
        """End all servers, for others to go on from the last snapshot.

        Raises:
            EdlError: WORKER_CRASH_LOOP; it has happened too often from there.
        """
        falls = self._falls.next(self._began_at)
        if falls.in_a_row > _MOST_FALLS:
            raise EdlError(
                error_pb2.WORKER_CRASH_LOOP,
                f"{self._lost}, as {_MOST_FALLS} times before without any progress",
                where="parameter servers",
                remedy="See logs/server-N.log in the job's directory, and whether the machine "
                "has the memory for parameters and optimizer slots.",
            )
        self.close(0)
        os.environ[_FALLS] = f"{falls.all} {falls.in_a_row} {falls.version}"

    def status(self) -> list[job_pb2.ParameterServerStatus]:
        """Each server as the job's status has it."""
        addresses = self.crew.addresses()
        there = "gone" if self.crew.over else "serving"
        pids = self._processes.pids if self._processes else ()
        return [
            job_pb2.ParameterServerStatus(
                id=number,
                state=there if number in addresses else "starting",
                address=addresses.get(number, ""),
                pid=pid,
                restarts=self._falls.all,
            )
            for number, pid in enumerate(pids)
        ]

    def close(self, within_s: float = 3.0) -> None:
        """Give no more orders, and end all processes."""
        self.crew.close()
        if self._processes is not None:
            self._processes.close(within_s)
