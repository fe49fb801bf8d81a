"""The group of parameter servers of one job, and the command log that all of them apply.

Every server receives all entries of the log, by one call that lasts as long as the server does.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from edl_master.core.parameters.commands import Command, TakeSnapshot
from edl_master.core.parameters.layout import Layout
from edl_master.core.parameters.modes import UpdateMode
from edl_master.core.parameters.status import TableFigures
from edl_master.parameter_servers import command_codec
from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2, job_pb2, servers_pb2

_POLL_S = 1.0
"""How soon a broken call of a server is detected."""


class ParameterServerGroup:
    """The command log, and addresses and reports of the servers; for many threads.

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
        self._restore_from = restore_from
        self._changed = threading.Condition()
        self._logs: list[queue.SimpleQueue[servers_pb2.CommandEntry | None]] = [
            queue.SimpleQueue() for _ in range(count)
        ]
        self._addresses: dict[int, str] = {}
        self._called_at: dict[int, float] = {}
        self._tables: dict[int, TableFigures] = {}
        self._written: defaultdict[str, dict[int, float]] = defaultdict(dict)
        self._log_index = 0
        self._labels = 0
        self._over = False

    # --- for the coordinator ---------------------------------------------------------------

    @property
    def count(self) -> int:
        """How many servers there are."""
        return len(self._logs)

    @property
    def log_index(self) -> int:
        """Commands appended so far."""
        return self._log_index

    def begin(self, model: Layout, optimizer_json: str, mode: UpdateMode) -> None:
        """Describe what is to be served; before the first command."""
        begin = command_codec.begin_to(
            self._job, model, optimizer_json, mode, self.count, self._restore_from
        )
        self._put(servers_pb2.CommandEntry(begin=begin))

    def append(self, command: Command) -> None:
        """Append to the command log. The caller's lock keeps the order of the commands."""
        if isinstance(command, TakeSnapshot):
            command = replace(command, place=str(self._places.get(command.place, "")))
        self._log_index += 1
        self._put(command_codec.command_to(command, self._log_index))

    def next_label(self) -> str:
        """A name for a snapshot that no other one has; later ones sort after it."""
        self._labels += 1
        return f"{self._incarnation}-{self._labels:08d}"

    def _put(self, entry: servers_pb2.CommandEntry) -> None:
        for log in self._logs:
            log.put(entry)

    # --- for servers -----------------------------------------------------------------------

    def follow(
        self, server: int, address: str, is_wanted: Callable[[], bool]
    ) -> Iterator[servers_pb2.CommandEntry]:
        """All entries of the log for one server, as they come.

        Raises:
            EdlError: USAGE; there is no such server, or it is connected already.
        """
        with self._changed:
            if server >= self.count or server in self._addresses:
                raise EdlError(
                    error_pb2.USAGE,
                    f"parameter server {server} does not exist or is connected already",
                    where="parameter servers",
                    remedy="Only the master starts parameter servers.",
                )
            self._addresses[server] = address
            self._called_at[server] = time.monotonic()
            self._changed.notify_all()
        while is_wanted():
            try:
                entry = self._logs[server].get(timeout=_POLL_S)
            except queue.Empty:
                continue
            if entry is None:
                return
            yield entry

    def report_alive(self, server: int) -> None:
        """A server has called."""
        with self._changed:
            self._called_at[server] = time.monotonic()

    def report_tables(self, server: int, tables: TableFigures) -> None:
        """A server has reported the sizes of its parts of embedding tables."""
        with self._changed:
            self._tables[server] = tables

    def report_written(self, server: int, label: str, seconds: float) -> None:
        """A server has written its part of a snapshot, in so many seconds."""
        with self._changed:
            self._written[label][server] = seconds
            self._changed.notify_all()

    # --- for the rest of the master ----------------------------------------------------------

    def addresses(self) -> dict[int, str]:
        """Addresses of the servers that are connected, by number."""
        with self._changed:
            return dict(sorted(self._addresses.items()))

    def tables(self) -> TableFigures:
        """Sizes of embedding tables, as the servers have reported them last."""
        with self._changed:
            return sum(self._tables.values(), TableFigures())

    def silent(self, for_s: float) -> int | None:
        """A server that has not called for so long; None if there is none."""
        now = time.monotonic()
        with self._changed:
            return next((n for n, at in self._called_at.items() if now - at > for_s), None)

    def extend_deadlines(self) -> None:
        """The master was held up itself: no call could be served."""
        with self._changed:
            self._called_at = dict.fromkeys(self._called_at, time.monotonic())

    def wait_for_all(self, timeout_s: float) -> tuple[str, ...]:
        """The addresses of all servers, in their order.

        Raises:
            EdlError: NOT_READY; some do not connect in time.
        """
        with self._changed:
            self._wait_for(lambda: len(self._addresses) == self.count, timeout_s)
            return tuple(self._addresses[number] for number in range(self.count))

    def wait_written(self, label: str, timeout_s: float) -> float:
        """Wait until every server has written its part of a snapshot.

        Returns:
            Seconds that the slowest of them has written. What came before is not counted, for
            example its start.

        Raises:
            EdlError: NOT_READY; some have not in time.
        """
        with self._changed:
            self._wait_for(lambda: len(self._written[label]) == self.count, timeout_s)
            return max(self._written.pop(label).values())

    def _wait_for(self, what: Callable[[], bool], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not what():
            left_s = deadline - time.monotonic()
            if left_s <= 0 or self._over:
                raise EdlError(
                    error_pb2.NOT_READY,
                    f"not all of {self.count} parameter servers have answered",
                    where="parameter servers",
                    remedy="See logs/server-N.log in the job's directory.",
                )
            self._changed.wait(left_s)

    @property
    def over(self) -> bool:
        """Whether there are no more commands."""
        return self._over

    def close(self) -> None:
        """End the command log and all waiting."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
        for log in self._logs:
            log.put(None)
