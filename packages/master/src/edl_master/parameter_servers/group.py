"""The parameter servers of one job, as the master sees them.

What the master decides goes to each of them as one numbered list. They fetch it by a call that
lasts as long as they live.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from edl_master.core.parameters.exchange import TableFigures
from edl_master.core.parameters.layout import Layout
from edl_master.core.parameters.modes import UpdateMode
from edl_master.core.parameters.orders import Keep, Order
from edl_master.parameter_servers import command_codec
from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2, job_pb2, servers_pb2

_LOOK_S = 1.0
"""How soon it is noticed that nobody follows any more."""


class Crew:
    """Gives orders, and knows where servers are and what they have kept; for many threads.

    Args:
        job: what the user submitted.
        count: how many servers there are.
        incarnation: of this master.
        places: directories by the names that orders to keep have; what has none is not kept.
        restore_from: checkpoint that servers go on from; empty: from the beginning.
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
        self._orders: list[queue.SimpleQueue[servers_pb2.Order | None]] = [
            queue.SimpleQueue() for _ in range(count)
        ]
        self._addresses: dict[int, str] = {}
        self._heard_at: dict[int, float] = {}
        self._tables: dict[int, TableFigures] = {}
        self._kept: defaultdict[str, dict[int, float]] = defaultdict(dict)
        self._given = 0
        self._labels = 0
        self._over = False

    # --- for whoever decides ---------------------------------------------------------------

    @property
    def count(self) -> int:
        """How many servers there are."""
        return len(self._orders)

    @property
    def given(self) -> int:
        """Orders so far."""
        return self._given

    def begin(self, model: Layout, optimizer_json: str, mode: UpdateMode) -> None:
        """Say what is to be served; before the first order."""
        begin = command_codec.begin_to(
            self._job, model, optimizer_json, mode, self.count, self._restore_from
        )
        self._put(servers_pb2.Order(begin=begin))

    def give(self, order: Order) -> None:
        """Give an order; it is carried out soon. The caller's lock keeps the order of orders."""
        if isinstance(order, Keep):
            order = replace(order, place=str(self._places.get(order.place, "")))
        self._given += 1
        self._put(command_codec.order_to(order, self._given))

    def next_label(self) -> str:
        """A name for a snapshot that no other one has; later ones sort after it."""
        self._labels += 1
        return f"{self._incarnation}-{self._labels:08d}"

    def _put(self, message: servers_pb2.Order) -> None:
        for orders in self._orders:
            orders.put(message)

    # --- for servers -----------------------------------------------------------------------

    def follow(
        self, server: int, address: str, is_wanted: Callable[[], bool]
    ) -> Iterator[servers_pb2.Order]:
        """All orders for one server, as they come.

        Raises:
            EdlError: USAGE; there is no such server, or it follows already.
        """
        with self._changed:
            if server >= self.count or server in self._addresses:
                raise EdlError(
                    error_pb2.USAGE,
                    f"there is no parameter server {server} to be, or there is one already",
                    where="parameter servers",
                    remedy="They are started by the master alone.",
                )
            self._addresses[server] = address
            self._heard_at[server] = time.monotonic()
            self._changed.notify_all()
        while is_wanted():
            try:
                order = self._orders[server].get(timeout=_LOOK_S)
            except queue.Empty:
                continue
            if order is None:
                return
            yield order

    def heard(self, server: int) -> None:
        """A server has said something."""
        with self._changed:
            self._heard_at[server] = time.monotonic()

    def told_tables(self, server: int, tables: TableFigures) -> None:
        """A server has said how large its part of embedding tables is."""
        with self._changed:
            self._tables[server] = tables

    def told_kept(self, server: int, label: str, seconds: float) -> None:
        """A server has written its part, which took so long."""
        with self._changed:
            self._kept[label][server] = seconds
            self._changed.notify_all()

    # --- for everybody else ----------------------------------------------------------------

    def addresses(self) -> dict[int, str]:
        """Where the servers are that follow, by number."""
        with self._changed:
            return dict(sorted(self._addresses.items()))

    def tables(self) -> TableFigures:
        """How large embedding tables are, as servers have said last."""
        with self._changed:
            return sum(self._tables.values(), TableFigures())

    def silent(self, for_s: float) -> int | None:
        """A server that has said nothing for so long; None if there is none."""
        now = time.monotonic()
        with self._changed:
            return next((n for n, at in self._heard_at.items() if now - at > for_s), None)

    def excuse(self) -> None:
        """The master was held up itself: nobody could be heard."""
        with self._changed:
            self._heard_at = dict.fromkeys(self._heard_at, time.monotonic())

    def wait_for_all(self, timeout_s: float) -> tuple[str, ...]:
        """The addresses of all servers, in their order.

        Raises:
            EdlError: NOT_READY; some are not there in time.
        """
        with self._changed:
            self._wait_for(lambda: len(self._addresses) == self.count, timeout_s)
            return tuple(self._addresses[number] for number in range(self.count))

    def wait_kept(self, label: str, timeout_s: float) -> float:
        """Wait until every server has written its part of a snapshot.

        Returns:
            Seconds that the slowest of them has written; what came before, its start for one,
            is not counted.

        Raises:
            EdlError: NOT_READY; some have not in time.
        """
        with self._changed:
            self._wait_for(lambda: len(self._kept[label]) == self.count, timeout_s)
            return max(self._kept.pop(label).values())

    def _wait_for(self, what: Callable[[], bool], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not what():
            left_s = deadline - time.monotonic()
            if left_s <= 0 or self._over:
                raise EdlError(
                    error_pb2.NOT_READY,
                    f"not all of {self.count} parameter servers are there",
                    where="parameter servers",
                    remedy="Their logs are beside the master's.",
                )
            self._changed.wait(left_s)

    @property
    def over(self) -> bool:
        """Whether there are no more orders."""
        return self._over

    def close(self) -> None:
        """No more orders come, and nobody waits any more."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
        for orders in self._orders:
            orders.put(None)
