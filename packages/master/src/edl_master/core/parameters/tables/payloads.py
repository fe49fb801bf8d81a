"""Ids and rows on the wire."""

from __future__ import annotations

from dataclasses import dataclass

from edl_master.core.parameters.payload import Payload


@dataclass(frozen=True, slots=True)
class RowIds:
    """A request for rows.

    Attributes:
        table: number of the table.
        ids: int64, packed.
    """

    table: int
    ids: Payload


@dataclass(frozen=True, slots=True)
class RowPayload:
    """Gradients or values of rows as they are sent.

    Attributes:
        table: number of the table.
        ids: int64, packed, each once.
        values: float32, packed, a row for each id.
    """

    table: int
    ids: Payload
    values: Payload
