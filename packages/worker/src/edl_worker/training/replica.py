"""This worker's copy of the parameters: which version it is, and how it gets another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2, job_pb2, parameters_pb2, task_pb2
from edl_worker.embedding.row_buffer import RowReceiveBuffer, requested
from edl_worker.embedding.tables import EmbeddingTables, IdArray, RowArray, RowRequest
from edl_worker.tensors.quantization import Precision
from edl_worker.training.arena import Arena, ReceiveBuffer
from edl_worker.training.trainer import StepResult, Trainer
from edl_worker.transport.master_client import MasterClient

_PIECE_BYTES = 32 << 20
"""Of rows that are sent or fetched as a whole."""


class ParameterReplica:
    """The model's weights as a copy of one parameter version of the master.

    Of embedding tables it has the rows that one minibatch needs.

    Attributes:
        version: of the values that the model has; None if they are not the newest version's
            (initial, frozen, or of another incarnation of the master).
    """

    def __init__(
        self,
        arena: Arena,
        trainer: Trainer,
        client: MasterClient,
        tables: EmbeddingTables | None = None,
        precision: Precision = job_pb2.FLOAT32,
    ) -> None:
        self._arena = arena
        self._precision = precision
        self._trainer = trainer
        self._client = client
        self._tables = tables
        self._inbox = ReceiveBuffer(arena.nbytes, arena.nbytes_as(precision))
        self._initial = arena.pack()
        self.version: int | None = None
        self._frozen: tuple[str, int] | None = None
        self._rows = RowReceiveBuffer([table.dim for table in tables.tables] if tables else [])

    def forget(self) -> None:
        """The values are no version of the present master."""
        self.version = None
        self._frozen = None
        self._rows.forget()

    def send_initial(self) -> bool:
        """Offer the initial values; False if another worker's were first."""
        for number, ids, rows in self._tables.initial_rows() if self._tables else ():
            step = max(1, _PIECE_BYTES // (8 + rows.itemsize * rows.shape[1]))
            for at in range(0, ids.size, step):
                piece = slice(at, at + step)
                sent = np.ascontiguousarray(ids[piece]), np.ascontiguousarray(rows[piece])
                if not self._client.put_rows(number, _bytes(sent[0]), _bytes(sent[1])):
                    return False
        return self._client.initialize(self._initial.data).accepted

    def refresh(self, wanted: RowRequest | None = None) -> bool:
        """Make the values those of the newest version; False if the master has none yet."""
        return self._pull(None, wanted).initialized

    def acquire_permit(self, lease: task_pb2.LeaseRef, wanted: RowRequest | None = None) -> bool:
        """Ask for a step permit and the values to compute from; False: ask again."""
        return self._pull(lease, wanted).permit_granted

    def has_rows(self, wanted: RowRequest | None) -> bool:
        """Whether the rows of a minibatch are there."""
        return wanted is None or self._rows.holds(wanted)

    def rows(self, wanted: RowRequest | None) -> list[Any]:
        """The rows of a minibatch, an array for each table."""
        return [] if wanted is None else self._rows.arrays(wanted)

    def use_frozen(self, name: str) -> int:
        """Make the values those of a frozen version; return its number.

        Raises:
            EdlError: there is no such version.
        """
        if self._frozen is None or self._frozen[0] != name:
            self.forget()
            reply = self._client.pull(self._inbox.open, self._arena.nbytes, frozen=name)
            if reply.nbytes != self._arena.nbytes:
                raise EdlError(
                    error_pb2.INTERNAL,
                    f"the master has no values of the frozen version {name}",
                    remedy="This is an internal error of edl; the master's log may tell more.",
                )
            self._trainer.assign(self._inbox.content)
            self._frozen = name, reply.version
        return self._frozen[1]

    def frozen_rows(self, wanted: RowRequest) -> list[Any]:
        """The rows that a minibatch needs, of the frozen version in use."""
        assert self._frozen is not None, "a frozen version is in use"
        name, version = self._frozen
        tables, ids = requested(wanted)
        self._client.pull(
            self._inbox.open,
            self._arena.nbytes + self._rows.nbytes(wanted),
            have_version=version,
            frozen=name,
            rows=tables,
            ids=ids,
            rows_buffer=self._rows.open(wanted),
        )
        self._rows.arrived(wanted)
        return self._rows.arrays(wanted)

    def scan(self, number: int) -> tuple[IdArray, RowArray]:
        """All rows of a table that gradients have reached, of the frozen version in use."""
        assert self._frozen is not None, "a frozen version is in use"
        assert self._tables is not None, "the model has tables"
        dim = self._tables.tables[number].dim
        found: list[tuple[IdArray, RowArray]] = []
        cursor, more = 0, True
        while more:
            most = _PIECE_BYTES // (8 + 4 * dim)
            reply, ids, rows = self._client.scan_rows(self._frozen[0], number, dim, cursor, most)
            part = np.frombuffer(rows, np.float32).reshape(-1, dim)
            found.append((np.frombuffer(ids, np.int64), part))
            cursor, more = reply.cursor, reply.more
        return np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found])

    def diverge(self) -> int:
        """The model's values are about to become no version's; return which they are now of."""
        assert self.version is not None, "there are values"
        version = self.version
        self.forget()
        return version

    def drop_rows(self) -> None:
        """The rows that have come are too old to be computed on."""
        self._rows.forget()

    def push(
        self,
        header: parameters_pb2.PushHeader,
        step: StepResult,
        wanted: RowRequest | None = None,
        following: RowRequest | None = None,
    ) -> Callable[[], parameters_pb2.PushReply]:
        """Prepare to push a step; the call that is returned does it, in any thread.

        As long as it runs nothing else may be asked of the replica than to compute on what it has.
        What it returns goes to ``take``.

        Args:
            header: without what follows from the other arguments; the claim is complete.
            wanted: the rows that the step was computed from.
            following: rows to come back too.
        """
        header.step.loss = step.loss
        header.gradient.precision = step.precision
        header.gradient.nbytes = sum(part.nbytes for part in step.gradient)
        header.gradient.state_nbytes = sum(part.nbytes for part in step.state_delta)
        brings_values = header.HasField("next")
        if brings_values:
            header.next.precision = self._precision
        payloads = [*step.gradient, *step.state_delta]
        nbytes = 2 * self._arena.nbytes
        if wanted is not None:
            tables, ids = requested(wanted)
            header.gradient.rows.extend(tables)
            payloads.append(ids)
            nbytes += 2 * self._rows.nbytes(wanted)
            if brings_values and following is not None:
                next_tables, next_ids = requested(following)
                header.next.rows.extend(next_tables)
                payloads.append(next_ids)
                nbytes += 2 * self._rows.nbytes(following)
            payloads.extend(step.rows)
        rows = self._rows.open(following)
        return lambda: self._client.push(header, tuple(payloads), self._inbox.open, nbytes, rows)

    def ask(self, wanted: RowRequest) -> Callable[[], parameters_pb2.PullReply]:
        """Prepare to fetch rows, and newer values if there are any; to be used as ``push``."""
        return self._asking(None, wanted)

    def take(
        self,
        reply: parameters_pb2.PushReply | parameters_pb2.PullReply,
        following: RowRequest | None = None,
    ) -> None:
        """Make the values and rows that have come those of the model."""
        there = reply.initialized if isinstance(reply, parameters_pb2.PullReply) else True
        if reply.nbytes or (there and not self._arena.nbytes):
            self._adopt(reply.version, reply.precision)
        if following is not None and (reply.rows_nbytes or not self._rows.nbytes(following)):
            self._rows.arrived(following, reply.precision)

    def _asking(
        self, permit_for: task_pb2.LeaseRef | None, wanted: RowRequest | None
    ) -> Callable[[], parameters_pb2.PullReply]:
        tables, ids = requested(wanted)
        nbytes = self._arena.nbytes + self._rows.nbytes(wanted)
        have, rows = self.version, self._rows.open(wanted)
        return lambda: self._client.pull(
            self._inbox.open,
            nbytes,
            have_version=have,
            permit_for=permit_for,
            rows=tables,
            ids=ids,
            rows_buffer=rows,
            precision=self._precision,
        )

    def _pull(
        self, permit_for: task_pb2.LeaseRef | None, wanted: RowRequest | None
    ) -> parameters_pb2.PullReply:
        reply = self._asking(permit_for, wanted)()
        self.take(reply, wanted)
        return reply

    def _adopt(self, version: int, precision: Precision) -> None:
        if self._arena.nbytes:
            self._trainer.assign(self._inbox.content, precision)
        self.version = version
        self._frozen = None


def _bytes(array: npt.NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data
