"""What the features of converted records are, for those who write a function that parses them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
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
    """

    type: str
    shape: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.type:<6} {' x '.join(map(str, self.shape))}"


def summarize(file: Path, image_shape: tuple[int, ...] | None) -> dict[str, FeatureSummary]:
    """The features of the first record of a file; none if it is no ``tf.Example``.

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
