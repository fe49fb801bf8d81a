"""Collects the schema from the records that a conversion writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import recordio
from edl_convert.schema import ColumnType, SchemaStatistics
from recordio import example_batch

_RECORDS = 2048
_OCTETS = 8 << 20


class RecordStatistics:
    """The schema of records, which are decoded in batches of bounded size.

    Records that are not tf.Examples have none.
    """

    def __init__(self) -> None:
        self._statistics: SchemaStatistics | None = SchemaStatistics()
        self._batch: list[bytes] = []
        self._octets = 0

    def add(self, record: bytes) -> None:
        if self._statistics is None:
            return
        self._batch.append(record)
        self._octets += len(record)
        if len(self._batch) >= _RECORDS or self._octets >= _OCTETS:
            self._flush()

    def schema(self, types: Mapping[str, ColumnType], label: str | None) -> dict[str, Any] | None:
        """Return the schema of all records so far as JSON, or None if there is none.

        Args:
            types: of the columns, in their order, where the source has types and an order.
            label: name of the feature that is the label.
        """
        self._flush()
        return self._statistics.to_dict(types, label) if self._statistics else None

    def _flush(self) -> None:
        batch, self._batch, self._octets = self._batch, [], 0
        if not batch or self._statistics is None:
            return
        try:
            groups = example_batch.decode(batch)
        except recordio.RecordError:
            self._statistics = None
            return
        self._statistics.add_rows(len(batch))
        for group in groups:
            self._statistics.add(group.features)
