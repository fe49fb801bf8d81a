"""The group of parameter servers of one job: their addresses, reports and command log.

Every server receives all entries of the log, by one call that lasts as long as the server does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from edl_master.core.parameters.statistics import ServerStatistics, TableStatistics
from edl_master.server_group.command_log import CommandLog
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2


class ParameterServerGroup:
    """The command log, and addresses and reports of the servers; thread-safe.

    The arguments are those of the command log.

    Attributes:
        log: the commands for the servers.
    """

    def __init__(
        self,
        job: job_pb2.JobSpec,
        count: int,
        incarnation: str,
        places: Mapping[str, Path],
        restore_from: str,
    ) -> None:
        self.log = CommandLog(job, count, incarnation, places, restore_from)
        self._changed = threading.Condition()
        self._addresses: dict[int, str] = {}
        self._called_at: dict[int, float] = {}
        self._tables: dict[int, TableStatistics] = {}
        self._statistics: dict[int, ServerStatistics] = {}
        # The last label of each server: it writes its parts in the order of their labels, and most
        # snapshots that a newer one overtakes are never waited for.
        self._written: dict[int, tuple[str, float]] = {}
        self._failure: EdlError | None = None
        self._over = False

    @property
    def count(self) -> int:
        """The number of servers."""
        return self.log.count

    # --- for servers -----------------------------------------------------------------------

    def follow(self, server: int, address: str, is_wanted: Callable[[], bool]) -> Iterator[bytes]:
        """Connect a server; yield all entries of the log for it, as they come.

        Raises:
            EdlError: USAGE; there is no such server, or it is connected already.
        """
        with self._changed:
            if server >= self.count or server in self._addresses:
                raise EdlError(
                    ErrorCode.USAGE,
                    f"parameter server {server} does not exist or is connected already",
                    where="parameter servers",
                    remedy="Only the master starts parameter servers.",
                )
            self._addresses[server] = address
            self._called_at[server] = time.monotonic()
            self._changed.notify_all()
        return self.log.entries(server, is_wanted)

    def record_heartbeat(self, server: int, statistics: ServerStatistics | None = None) -> None:
        """Record a call of a server, perhaps with its statistics."""
        with self._changed:
            self._called_at[server] = time.monotonic()
            if statistics is not None:
                self._statistics[server] = statistics

    def report_tables(self, server: int, tables: TableStatistics) -> None:
        """Record the sizes of a server's parts of embedding tables."""
        with self._changed:
            self._tables[server] = tables

    def report_written(self, server: int, label: str, seconds: float) -> None:
        """Record that a server has written its part of a snapshot, in ``seconds``."""
        with self._changed:
            self._written[server] = max(self._written.get(server, ("", 0.0)), (label, seconds))
            self._changed.notify_all()

    def report_failed(self, failure: EdlError) -> None:
        """Stop waiting for a failed server's part of a snapshot."""
        with self._changed:
            self._failure = self._failure or failure
            self._changed.notify_all()

    # --- for the rest of the master ----------------------------------------------------------

    def addresses(self) -> dict[int, str]:
        """Return the addresses of the servers that are connected, by number."""
        with self._changed:
            return dict(sorted(self._addresses.items()))

    def tables(self) -> TableStatistics:
        """Return the sizes of embedding tables, as the servers have reported them last."""
        with self._changed:
            return sum(self._tables.values(), TableStatistics())

    @property
    def statistics(self) -> dict[int, ServerStatistics]:
        """The statistics that each server has reported last, by number."""
        with self._changed:
            return dict(sorted(self._statistics.items()))

    def silent(self, for_s: float) -> int | None:
        """Return a server that has not called for ``for_s`` seconds; None if there is none."""
        now = time.monotonic()
        with self._changed:
            return next((n for n, at in self._called_at.items() if now - at > for_s), None)

    def extend_deadlines(self) -> None:
        """Extend deadlines by a time in which the master itself could serve no call."""
        with self._changed:
            self._called_at = dict.fromkeys(self._called_at, time.monotonic())

    def wait_for_all(self, timeout_s: float) -> tuple[str, ...]:
        """Return the addresses of all servers, in their order.

        Raises:
            EdlError: NOT_READY; some do not connect in time.
        """
        with self._changed:
            self._wait_for(lambda: len(self._addresses) == self.count, timeout_s)
            return tuple(self._addresses[number] for number in range(self.count))

    def wait_written(self, label: str, timeout_s: float) -> float:
        """Wait until every server has written its part of a snapshot.

        Returns:
            Seconds that the slowest of them has written, at this snapshot or a later one. What
            came before is not counted, for example its start.

        Raises:
            EdlError: NOT_READY; some have not in time. If one of them has failed, its failure.
        """
        with self._changed:
            self._wait_for(
                lambda: sum(last >= label for last, _ in self._written.values()) == self.count,
                timeout_s,
            )
            return max(seconds for _, seconds in self._written.values())

    def _wait_for(self, what: Callable[[], bool], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not what():
            if self._failure is not None:
                raise self._failure
            left_s = deadline - time.monotonic()
            if left_s <= 0 or self._over:
                raise EdlError(
                    ErrorCode.NOT_READY,
                    f"not all of {self.count} parameter servers have answered",
                    where="parameter servers",
                    remedy="See logs/server-N.log in the job's directory.",
                )
            self._changed.wait(left_s)

    @property
    def over(self) -> bool:
        """Whether the log has ended."""
        return self._over

    def close(self) -> None:
        """End the command log and all waiting."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
        self.log.close()
