"""Ids and rows on the wire: those of all tables one after the other, in one piece of memory."""

from __future__ import annotations

from dataclasses import dataclass

from edl_master.core.parameters.payload import Payload


@dataclass(frozen=True, slots=True)
class RowIds:
    """A request for rows.

    Attributes:
        tables: numbers of the tables, each once.
        counts: how many ids of each table.
        ids: int64, packed, table by table.
    """

    tables: tuple[int, ...]
    counts: tuple[int, ...]
    ids: Payload


@dataclass(frozen=True, slots=True)
class RowPayload:
    """Gradients or values of rows as they are sent.

    Attributes:
        tables, counts, ids: as in ``RowIds``; each id once in a table.
        values: float32, packed, a row for each id.
    """

    tables: tuple[int, ...]
    counts: tuple[int, ...]
    ids: Payload
    values: Payload
