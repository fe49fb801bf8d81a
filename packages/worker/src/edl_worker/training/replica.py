"""This worker's copy of the parameters: which version it has, and how it gets another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.core.exchange import (
    ParameterReply,
    PullRequest,
    PushReply,
    PushRequest,
    ScanRequest,
    TableRows,
)
from edl_worker.core.row_engine import IdArray, RowArray, RowRequest
from edl_worker.core.step_engine import StepEngine, StepResult
from edl_worker.core.tasks import LeaseRef
from edl_worker.training.row_buffer import RowReceiveBuffer, describe_request
from edl_worker.transport.parameter_client import PAGE_BYTES, ParameterClient


class ParameterReplica:
    """The model's weights as a copy of one parameter version.

    Of embedding tables it has the rows that one minibatch needs.

    Attributes:
        version: of the values that the model has; None if they are not those of the newest
            version (initial, frozen, or of another incarnation of the master).
    """

    def __init__(self, engine: StepEngine, client: ParameterClient) -> None:
        layout, tables = engine.layout, engine.tables
        self._layout = layout
        self._engine = engine
        self._client = client
        self._dims = [table.dim for table in tables.describe()] if tables else []
        self._buffer = ReceiveBuffer(layout.nbytes, layout.nbytes_as(engine.precision))
        self.version: int | None = None
        self._frozen: tuple[str, int] | None = None
        self._rows = RowReceiveBuffer()

    def forget(self) -> None:
        """Treat the values as no version of the present master."""
        self.version = None
        self._frozen = None
        self._rows.forget()

    # --- the newest version ----------------------------------------------------------------

    def pull(
        self, wanted: RowRequest | None = None, permit_for: LeaseRef | None = None
    ) -> ParameterReply:
        """Make the values those of the newest version, and fetch the rows of a minibatch.

        Args:
            permit_for: wait for a step permit for this lease.
        """
        reply = self.prepare_pull(wanted, permit_for)()
        self.take(reply, wanted)
        return reply

    def has_rows(self, wanted: RowRequest | None) -> bool:
        """Whether the rows of a minibatch are here."""
        return wanted is None or self._rows.holds(wanted)

    def rows(self, wanted: RowRequest | None) -> RowArray | None:
        """Return the rows of a minibatch."""
        return None if wanted is None else self._rows.rows(wanted)

    def drop_rows(self) -> None:
        """Forget the received rows: they are too old to compute on."""
        self._rows.forget()

    def begin_push(self, *, changes_values: bool) -> int:
        """Return the version of the values, from which a push is about to be computed.

        Args:
            changes_values: computing changes the values, which are no version after that.
        """
        assert self.version is not None, "there are values"
        version = self.version
        if changes_values:
            self.forget()
        return version

    def prepare_push(
        self,
        request: PushRequest,
        step: StepResult,
        wanted: RowRequest | None = None,
        following: RowRequest | None = None,
    ) -> Callable[[], PushReply]:
        """Return a call that pushes a step; it may be made in any thread.

        While the call runs, the replica may only be used to compute on what it has. The result
        of the call goes to ``take``.

        Args:
            request: the push, without payloads and precisions.
            wanted: the rows that the step was computed from.
            following: rows that the reply should bring.
        """
        rows: tuple[TableRows, ...] = ()
        next_rows: tuple[TableRows, ...] = ()
        payloads = [*step.gradient, *step.state_delta]
        nbytes = 2 * self._layout.nbytes
        if wanted is not None:
            rows, ids = describe_request(wanted)
            payloads.append(ids)
            nbytes += 2 * wanted.nbytes
            if request.wants_values and following is not None:
                next_rows, next_ids = describe_request(following)
                payloads.append(next_ids)
                nbytes += 2 * following.nbytes
            payloads.append(step.rows)
        complete = replace(
            request,
            precision=step.precision,
            reply_precision=self._engine.precision,
            gradient_nbytes=sum(part.nbytes for part in step.gradient),
            state_nbytes=sum(part.nbytes for part in step.state_delta),
            rows=rows,
            next_rows=next_rows,
        )
        buffer = self._rows.open(following)
        return lambda: self._client.push(
            complete, tuple(payloads), self._buffer.open, nbytes, buffer
        )

    def prepare_pull(
        self, wanted: RowRequest | None, permit_for: LeaseRef | None = None
    ) -> Callable[[], ParameterReply]:
        """Return a call that does what ``pull`` does but for ``take``; see ``prepare_push``."""
        tables, ids = describe_request(wanted)
        request = PullRequest(
            have_version=self.version,
            permit_for=permit_for,
            rows=tables,
            precision=self._engine.precision,
        )
        nbytes = self._layout.nbytes + (wanted.nbytes if wanted else 0)
        rows = self._rows.open(wanted)
        return lambda: self._client.pull(request, self._buffer.open, nbytes, ids, rows)

    def take(self, reply: ParameterReply, following: RowRequest | None = None) -> None:
        """Use the values and rows that a reply has brought."""
        if reply.nbytes or (reply.initialized and not self._layout.nbytes):
            if self._layout.nbytes:
                self._engine.assign(self._buffer.content, reply.precision)
            self.version = reply.version
            self._frozen = None
        if following is not None and (reply.rows_nbytes or not following.nbytes):
            self._rows.on_received(following, reply.precision)

    # --- frozen versions -------------------------------------------------------------------

    def use_frozen(self, name: str) -> None:
        """Make the values those of a frozen version. Raises: EdlError: there is no such version."""
        if self._frozen is not None and self._frozen[0] == name:
            return
        self.forget()
        request = PullRequest(frozen=name)
        reply = self._client.pull(request, self._buffer.open, self._layout.nbytes)
        if reply.nbytes != self._layout.nbytes:
            raise EdlError(
                ErrorCode.INTERNAL,
                f"the master has no values of the frozen version {name}",
                remedy="This is an internal error; see the master's log.",
            )
        self._engine.assign(self._buffer.content)
        self._frozen = name, reply.version

    def frozen_rows(self, wanted: RowRequest) -> RowArray:
        """Return the rows that a minibatch needs, of the frozen version in use."""
        assert self._frozen is not None, "a frozen version is in use"
        name, version = self._frozen
        tables, ids = describe_request(wanted)
        self._client.pull(
            PullRequest(have_version=version, frozen=name, rows=tables),
            self._buffer.open,
            self._layout.nbytes + wanted.nbytes,
            ids,
            self._rows.open(wanted),
        )
        self._rows.on_received(wanted)
        return self._rows.rows(wanted)

    def scan(self, number: int) -> tuple[IdArray, RowArray]:
        """Return all trained rows of a table, of the frozen version in use."""
        assert self._frozen is not None, "a frozen version is in use"
        dim = self._dims[number]
        found: list[tuple[IdArray, RowArray]] = []
        cursor, more = 0, True
        while more:
            most = PAGE_BYTES // (8 + 4 * dim)
            page = self._client.scan_rows(ScanRequest(self._frozen[0], number, dim, cursor, most))
            rows = np.frombuffer(page.rows, np.float32).reshape(-1, dim)
            found.append((np.frombuffer(page.ids, np.int64), rows))
            cursor, more = page.cursor, page.more
        return np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found])


class ReceiveBuffer:
    """The buffer into which values from the master are received, always the same one.

    Args:
        sizes: the possible sizes in bytes, the largest first.
    """

    def __init__(self, *sizes: int) -> None:
        self._sizes = sizes
        self._memory = np.empty(sizes[0], np.uint8)
        self.content = self._memory

    def open(self, nbytes: int) -> memoryview:
        """Return the buffer to be filled; it is ``content`` from now on.

        Raises:
            EdlError: the values are not as large as the model's.
        """
        if nbytes not in self._sizes:
            raise EdlError(
                ErrorCode.INTERNAL,
                f"the master sent {nbytes} bytes of parameters, the model has {self._sizes[0]}",
                remedy="This is an internal error of edl: master and worker agreed on a layout.",
            )
        self.content = self._memory[:nbytes]
        return self.content.data


def read_slots(
    client: ParameterClient, nbytes: int, names: Sequence[str]
) -> tuple[int, dict[str, npt.NDArray[np.uint8]]]:
    """Return how many updates the master's optimizer has made, and slots of it.

    Call it when the training is over: until then slots change.

    Args:
        client: of the parameters.
        nbytes: of a payload of parameters, as which a slot comes.
        names: of slots in the layout of the values.
    """
    updates, slots = 0, {}
    for name in names or ("",):
        buffer = ReceiveBuffer(nbytes)
        request = PullRequest(frozen=f"slots/{name}")
        updates = client.pull(request, buffer.open, nbytes).version
        slots[name] = buffer.content
    return updates, slots
