"""A summary of the features of records, for users who write a function that parses them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import recordio
import recordio.example


@dataclass(frozen=True, slots=True)
class FeatureSummary:
    """One feature.

    Attributes:
        type: int64, float or bytes.
        shape: of its values. Pixels that are one string of bytes have their shape, too.
        values: the fewest and the most values that a record has, if that differs between records
            with the feature.
    """

    type: str
    shape: tuple[int, ...]
    values: tuple[int, int] | None = None

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    def __str__(self) -> str:
        many = " x ".join(map(str, self.shape))
        if self.values is not None:
            many += "; {:,} to {:,} values in others".format(*self.values)
        return f"{self.type:<6} {many}"


def summarize(file: Path, image_shape: tuple[int, ...] | None) -> dict[str, FeatureSummary]:
    """Return the features of a file's first record; none if it is no ``tf.Example``.

    Args:
        image_shape: of the feature ``image``, whose values are stored flat.
    """
    (record,) = recordio.open_source(str(file)).read(0, 1)
    try:
        features = recordio.example.decode(record)
    except recordio.RecordError:
        return {}
    found = {}
    for name, value in sorted(features.items()):
        kind = "bytes"
        if isinstance(value, np.ndarray):
            kind = "int64" if value.dtype.kind == "i" else "float"
        shape = image_shape if name == "image" and image_shape else (len(value),)
        found[name] = FeatureSummary(kind, tuple(map(int, shape)))
    return found


def with_values(
    features: Mapping[str, FeatureSummary], schema: Mapping[str, Any]
) -> dict[str, FeatureSummary]:
    """Return the features with the numbers of values that the schema of all records has."""
    found = dict(features)
    for column in schema["columns"]:
        many = column.get("values", {"min": 0, "max": 0})
        if column["name"] in found and many["min"] < many["max"]:
            varies = (many["min"], many["max"])
            found[column["name"]] = replace(found[column["name"]], values=varies)
    return found
