"""The command log of a job's parameter servers: every server receives all of its entries."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from edl_master.core.parameters.commands import Command, TakeSnapshot
from edl_master.core.parameters.layout import Layout
from edl_master.core.parameters.modes import UpdateMode
from edl_master.server_group import command_codec
from edl_proto.v1 import job_pb2, servers_pb2

_POLL_S = 1.0
"""How soon a broken call of a server is detected."""


class CommandLog:
    """The entries of the log, serialized, in a queue for each server.

    Args:
        job: what the user submitted.
        count: how many servers there are.
        incarnation: of this master.
        places: directories by the places that snapshots name; no snapshot is written to others.
        restore_from: checkpoint that servers restore; empty: none.
    """

    def __init__(
        self,
        job: job_pb2.JobSpec,
        count: int,
        incarnation: str,
        places: Mapping[str, Path],
        restore_from: str,
    ) -> None:
        self._job = job
        self._incarnation = incarnation
        self._places = places
        self.restore_from = restore_from
        self._queues: list[queue.SimpleQueue[bytes | None]] = [
            queue.SimpleQueue() for _ in range(count)
        ]
        self._index = 0
        self._labels = 0

    @property
    def count(self) -> int:
        """The number of servers."""
        return len(self._queues)

    @property
    def job(self) -> str:
        """The name of the job."""
        return self._job.name

    def is_place(self, directory: str) -> bool:
        """Return whether snapshots are written there."""
        return directory in map(str, self._places.values())

    @property
    def index(self) -> int:
        """The number of commands appended so far."""
        return self._index

    def begin(self, model: Layout, optimizer_json: str, mode: UpdateMode) -> None:
        """Describe what is to be served; before the first command."""
        begin = command_codec.begin_to(
            self._job, model, optimizer_json, mode, self.count, self.restore_from
        )
        self._put(servers_pb2.CommandEntry(begin=begin))

    def append(self, command: Command) -> None:
        """Append to the command log. The caller's lock keeps the order of the commands."""
        if isinstance(command, TakeSnapshot):
            command = replace(command, place=str(self._places.get(command.place, "")))
        self._index += 1
        self._put(command_codec.command_to(command, self._index))

    def next_label(self) -> str:
        """Return a name for a snapshot that no other one has; later ones sort after it."""
        self._labels += 1
        return f"{self._incarnation}-{self._labels:08d}"

    def entries(self, server: int, is_wanted: Callable[[], bool]) -> Iterator[bytes]:
        """Yield all entries for one server, as they come; it ends with the log or the call."""
        while is_wanted():
            try:
                entry = self._queues[server].get(timeout=_POLL_S)
            except queue.Empty:
                continue
            if entry is None:
                return
            yield entry

    def close(self) -> None:
        """End the log."""
        for each in self._queues:
            each.put(None)

    def _put(self, entry: servers_pb2.CommandEntry) -> None:
        serialized = entry.SerializeToString()
        for each in self._queues:
            each.put(serialized)
