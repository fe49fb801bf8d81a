"""The columns of a table and statistics of their values: the content of ``schema.json``.

Statistics are of the values as records hold them: floats with 32 bits, texts as bytes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

import numpy as np

from edl.plugins.data import SCHEMA_VERSION
from edl_convert.distinct_count import DistinctCount


class ColumnType(StrEnum):
    """The type of a column where it comes from."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOAT = "float"
    DECIMAL = "decimal"
    STRING = "string"
    BYTES = "bytes"
    DATE = "date"
    TIMESTAMP = "timestamp"
    UNKNOWN = "unknown"
    """No record has a value."""


_TYPE_OF_FEATURE = {
    "int64": ColumnType.INTEGER,
    "float": ColumnType.FLOAT,
    "bytes": ColumnType.BYTES,
}


class _NumericStatistics:
    """Mean, deviation and range of numbers that come in batches; NaN and infinities are counted."""

    def __init__(self) -> None:
        self._count = 0
        self._not_finite = 0
        self._mean = 0.0
        self._squares = 0.0  # sum of squared differences from the mean
        self._least: int | float = math.inf
        self._greatest: int | float = -math.inf

    def add(self, values: np.ndarray[Any, Any]) -> None:
        numbers = values.astype(np.float64)
        finite = np.isfinite(numbers)
        if not finite.all():
            self._not_finite += int(len(numbers) - finite.sum())
            values, numbers = values[finite], numbers[finite]
        if not len(numbers):
            return
        count, mean = len(numbers), float(numbers.mean())
        total, difference = self._count + count, mean - self._mean
        self._squares += float(np.square(numbers - mean).sum())
        self._squares += difference * difference * self._count * count / total
        self._mean += difference * count / total
        self._count = total
        self._least = min(self._least, values.min().item())
        self._greatest = max(self._greatest, values.max().item())

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self._count:
            found = {
                "mean": self._mean,
                "deviation": math.sqrt(self._squares / self._count),
                "min": self._least,
                "max": self._greatest,
            }
        if self._not_finite:
            found["not_finite"] = self._not_finite
        return found


class _Column:
    """The statistics of one column so far."""

    def __init__(self) -> None:
        self._features: set[str] = set()
        self._records = 0
        self._fewest = 0
        self._most = 0
        self._longest = 0
        self._numbers = _NumericStatistics()
        self._distinct = DistinctCount()

    def add(self, values: np.ndarray[Any, Any] | list[list[bytes]]) -> None:
        """Add the values of some records, equally many in each: a row for each record."""
        width = len(values[0])
        if not width:
            return  # a feature without values is a NULL
        self._fewest = min(self._fewest or width, width)
        self._most = max(self._most, width)
        self._records += len(values)
        if isinstance(values, np.ndarray):
            self._features.add("int64" if values.dtype.kind == "i" else "float")
            self._numbers.add(values.reshape(-1))
        else:
            self._features.add("bytes")
            texts = {text for row in values for text in row}
            self._longest = max(self._longest, *map(len, texts))
            self._distinct.add(hashlib.blake2b(text, digest_size=8).digest() for text in texts)

    def to_dict(self, name: str, rows: int, declared: ColumnType | None) -> dict[str, Any]:
        feature = next(iter(self._features)) if len(self._features) == 1 else None
        known = _TYPE_OF_FEATURE[feature] if feature else ColumnType.UNKNOWN
        if declared in (None, ColumnType.UNKNOWN):
            declared = known
        found: dict[str, Any] = {
            "name": name,
            "type": str(declared),
            "feature": feature or ("mixed" if self._features else None),
            "nulls": rows - self._records,
        }
        if self._features:
            found["values"] = {"min": self._fewest, "max": self._most}
        found |= self._numbers.to_dict()
        if "bytes" in self._features:
            found["longest"] = self._longest
            found["vocabulary"] = {"size": self._distinct.size, "exact": self._distinct.exact}
        return found


class SchemaStatistics:
    """Collects the schema of records that come in batches."""

    def __init__(self) -> None:
        self._rows = 0
        self._columns: dict[str, _Column] = {}

    def add_rows(self, number: int) -> None:
        self._rows += number

    def add(self, features: Mapping[str, np.ndarray[Any, Any] | list[list[bytes]]]) -> None:
        """Add the values of some records by name, equally many of a name in each record."""
        for name, values in features.items():
            self._columns.setdefault(name, _Column()).add(values)

    def to_dict(self, types: Mapping[str, ColumnType], label: str | None) -> dict[str, Any]:
        """Return the schema as JSON.

        Args:
            types: of the columns, in their order, where the source has types and an order.
            label: name of the feature that is the label.
        """
        names: Iterable[str] = dict.fromkeys((*types, *sorted(self._columns)))
        return {
            "version": SCHEMA_VERSION,
            "rows": self._rows,
            "label": label,
            "columns": [
                self._columns.get(name, _Column()).to_dict(name, self._rows, types.get(name))
                for name in names
            ],
        }
