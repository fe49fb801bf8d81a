"""The port to the embedding tables of a model, of which a step gets the rows that it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from edl_worker.core.batch import Batch
from edl_worker.core.exchange import TableRows
from edl_worker.core.model_description import TableDescription

IdArray = npt.NDArray[np.int64]
RowArray = npt.NDArray[np.float32]
Scan = Callable[[int], tuple[IdArray, RowArray]]
"""Returns all rows of a table, given its number."""


@dataclass(frozen=True, slots=True, eq=False)
class RowRequest:
    """The rows that one minibatch needs: their ids, and later the rows, table by table.

    Attributes:
        tables: the tables that are looked up, and how many ids each has, in order.
        ids: of all these tables, of shape (n,); each once in a table.
        nbytes: of the rows in float32.
        lookups: what the engine needs to give each lookup its rows.
    """

    tables: tuple[TableRows, ...]
    ids: IdArray
    nbytes: int
    lookups: Any = None

    def ids_by_table(self) -> Iterator[tuple[int, IdArray]]:
        """Yield the number and the ids of each table."""
        at = 0
        for one in self.tables:
            yield one.table, self.ids[at : at + one.count]
            at += one.count


class RowEngine(Protocol):
    """The embedding tables of a model, in the order in which the master numbers them."""

    def describe(self) -> Sequence[TableDescription]:
        """Return the tables for ``ModelDescription.tables``."""

    def find_rows(self, batch: Batch, *, training: bool) -> RowRequest:
        """Return the rows that a minibatch needs.

        Raises:
            EdlError: they cannot be known before the model runs, or are too many.
            ValueError: an id is none of the layer's.
        """

    def initial_rows(self) -> Iterator[tuple[int, IdArray, RowArray]]:
        """Yield rows that differ from the initializer: table number, ids (n,), rows (n, dim)."""

    def initial_rows_of(self, wanted: RowRequest) -> Any:
        """Return the rows that a minibatch needs, as before training; float32 of shape (n,)."""

    def stored_rows(self, scan: Scan) -> AbstractContextManager[None]:
        """Return a context in which the model has all rows, so that it needs no master."""
