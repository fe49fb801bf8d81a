"""Payloads in parts: where the bytes and rows of each server lie in a worker's payload."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from edl_proto.transport.row_placement import server_of
from edl_worker.core.exchange import PushRequest, TableRows
from edl_worker.core.job import WirePrecision
from edl_worker.core.model_description import VariableDescription

_NOTHING = memoryview(b"")

WHOLE = np.dtype(np.float32)


def dtype_of(precision: WirePrecision) -> np.dtype[Any]:
    """Return a dtype of the same width as the numbers of rows, for moving them only."""
    return WHOLE if precision is WirePrecision.FLOAT32 else np.dtype(np.uint16)


@dataclass(frozen=True, slots=True)
class PayloadOffsets:
    """The offsets of a payload's bytes in the message.

    Attributes:
        quantizable: bytes at its beginning of numbers that may have 16 bits: trainable float32.
        gradient: bytes of its trainable variables, which are a gradient.
    """

    quantizable: int
    gradient: int

    @classmethod
    def of(cls, variables: Iterable[VariableDescription]) -> PayloadOffsets:
        """Return the offsets for a model whose variables are in the order of ``arena``."""
        trainable = [one for one in variables if one.trainable]
        quantizable = sum(_nbytes(one) for one in trainable if one.dtype == "float32")
        return cls(quantizable, sum(map(_nbytes, trainable)))

    def at(self, place: int, precision: WirePrecision) -> int:
        """Return where a byte lies that is at ``place`` in a payload of 32 bits."""
        if precision is WirePrecision.FLOAT32:
            return place
        return place - min(place, self.quantizable) // 2


class BufferChain:
    """A chain of pieces of memory, read as one."""

    def __init__(self, pieces: Sequence[memoryview]) -> None:
        self._pieces = [piece.cast("B") for piece in pieces if piece.nbytes]
        self.nbytes = sum(piece.nbytes for piece in self._pieces)

    def pieces(self, start: int, stop: int) -> list[memoryview]:
        """Return bytes ``start`` to ``stop``, not copied."""
        found, at = [], 0
        for piece in self._pieces:
            first, last = max(start - at, 0), min(stop - at, piece.nbytes)
            if first < last:
                found.append(piece[first:last])
            at += piece.nbytes
        return found

    def join(self, start: int, stop: int) -> memoryview:
        """Return bytes ``start`` to ``stop`` as one piece, copied if they are several."""
        found = self.pieces(start, stop)
        if len(found) == 1:
            return found[0]
        return memoryview(b"".join(found))


class PushPayload:
    """The bytes that go with a push, as one and by what they are.

    Args:
        request: has the length of each part.
        chain: gradient, state difference, ids of rows, ids of the next rows, gradients of rows.
    """

    def __init__(self, request: PushRequest, chain: BufferChain) -> None:
        ids_at = request.gradient_nbytes + request.state_nbytes
        next_at = ids_at + 8 * sum(one.count for one in request.rows)
        values_at = next_at + 8 * sum(one.count for one in request.next_rows)
        self.chain = chain
        self.ids = chain.join(ids_at, next_at)
        self.next_ids = chain.join(next_at, values_at)
        self.row_values = chain.join(values_at, chain.nbytes)


@dataclass(frozen=True, slots=True)
class _Run:
    """Successive tables of one width, whose rows are divided like those of one table.

    Attributes:
        count: their ids.
        dim: numbers of a row.
        places: of each server, the places of its ids among those of the run.
    """

    count: int
    dim: int
    places: list[npt.NDArray[np.int64]]


class PartitionedIds:
    """The ids of rows of several tables, divided by server.

    Args:
        tables: how many of which table.
        ids: int64, one table after the other.
        dims: numbers of a row, by table.
        servers: how many there are.
    """

    def __init__(
        self, tables: Iterable[TableRows], ids: memoryview, dims: Sequence[int], servers: int
    ) -> None:
        self._rows = tuple(tables)
        counted = [(one.table, one.count) for one in self._rows]
        self._tables = [table for table, _ in counted]
        self._dims = np.array([dims[table] for table in self._tables], np.int64)
        self._flat = flat = _numbers(ids).copy()
        owners = server_of(flat, servers).astype(np.int16)  # numpy sorts 16 bits fastest
        numbers = np.repeat(np.arange(len(counted)), [count for _, count in counted])
        self._counts = np.bincount(
            numbers * servers + owners, minlength=len(counted) * servers
        ).reshape(len(counted), servers)
        self._runs: list[_Run] = []
        at = 0
        for dim, run in groupby(counted, key=lambda one: dims[one[0]]):
            count = sum(each for _, each in run)
            self._runs.append(_Run(count, dim, _divide(owners[at : at + count], servers)))
            at += count
        all_places = self._runs[0].places if len(self._runs) == 1 else _divide(owners, servers)
        self._ids = [flat[places] for places in all_places]

    def is_of(self, tables: tuple[TableRows, ...], ids: memoryview) -> bool:
        """Return whether these are the ids that are divided here."""
        return self._rows == tables and np.array_equal(self._flat, _numbers(ids))

    def counts(self, server: int) -> tuple[TableRows, ...]:
        """Return the number of rows of each table on one server."""
        return tuple(map(TableRows, self._tables, self._counts[:, server].tolist()))

    def of(self, server: int) -> memoryview:
        """Return the ids that one server has."""
        return _bytes(self._ids[server])

    def row_nbytes(self, server: int, dtype: np.dtype[Any]) -> int:
        """Return the number of bytes of one server's rows in a dtype."""
        return dtype.itemsize * int(self._counts[:, server] @ self._dims)

    def divide(self, rows: memoryview, dtype: np.dtype[Any]) -> list[memoryview]:
        """Return the rows of all ids in a dtype, for each server."""
        flat = np.frombuffer(rows, dtype) if rows.nbytes else np.empty(0, dtype)
        parts: list[list[npt.NDArray[Any]]] = [[] for _ in self._ids]
        for mine, run in self._of_runs(flat):
            for part, places in zip(parts, run.places, strict=True):
                part.append(mine.take(places, 0).reshape(-1))
        return [
            _bytes(each[0] if len(each) == 1 else np.concatenate(each or [flat])) for each in parts
        ]

    def join(
        self, found: Sequence[npt.NDArray[np.uint8]], rows: memoryview, dtype: np.dtype[Any]
    ) -> None:
        """Put the rows of each server, of numbers of a dtype, to the places of their ids."""
        sources = [part.view(dtype) for part in found]
        taken = [0] * len(sources)
        for mine, run in self._of_runs(np.frombuffer(rows, dtype)):
            for server, places in enumerate(run.places):
                end = taken[server] + places.size * run.dim
                mine[places] = sources[server][taken[server] : end].reshape(-1, run.dim)
                taken[server] = end

    def _of_runs(self, flat: npt.NDArray[Any]) -> Iterator[tuple[npt.NDArray[Any], _Run]]:
        """Yield the rows of each run, and the run."""
        at = 0
        for run in self._runs:
            end = at + run.count * run.dim
            yield flat[at:end].reshape(run.count, run.dim), run
            at = end


def _divide(owners: npt.NDArray[np.int16], servers: int) -> list[npt.NDArray[np.int64]]:
    """Return the places of each server's ids, in their order."""
    order = np.argsort(owners, kind="stable")
    return np.split(order, np.searchsorted(owners[order], np.arange(1, servers)))


def _nbytes(variable: VariableDescription) -> int:
    return int(np.prod(variable.shape, dtype=np.int64)) * np.dtype(variable.dtype).itemsize


def _numbers(ids: memoryview) -> npt.NDArray[np.int64]:
    return np.frombuffer(ids, np.int64) if ids.nbytes else np.empty(0, np.int64)


def _bytes(array: npt.NDArray[Any]) -> memoryview:
    if not array.size:
        return _NOTHING
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
