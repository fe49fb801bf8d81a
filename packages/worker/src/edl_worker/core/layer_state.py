"""The state of a model that is not among its weights, such as the vocabulary of a layer."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from edl_proto.printable import clip, one_line
from edl_runtime.model.close_numbers import are_close

_MAX_NUMBERS = 256
_MAX_NAME = 250
"""Characters that the master takes, but for those of a mark where the middle is cut out."""


@dataclass(frozen=True, slots=True)
class StateSummary:
    """A summary of such a state, by which the master compares workers.

    Attributes:
        name: of the state, unique in the model file.
        place: file and line that gave it this state, for messages; empty if unknown.
        digest: of everything but floating numbers.
        numbers: the floating numbers, or means of parts of them: the last digits of what is
            computed from the same data may depend on the processor.
        optional: compared only with a worker of the same code that has the state, too.
    """

    name: str
    place: str
    digest: str
    numbers: tuple[float, ...] = ()
    optional: bool = False

    def equals(self, other: StateSummary) -> bool:
        """Return whether both are the same state, but for the last digits of numbers."""
        return self.digest == other.digest and are_close(self.numbers, other.numbers)


@dataclass(frozen=True, slots=True)
class LayerState:
    """The state that a model took from data or files while its file was loaded.

    Attributes:
        name: class and name of a layer, or what else has this state; unique in the model file.
        place: file and line that gave it this state; empty if unknown.
        values: numbers, texts and lists of them, by name.
        optional: as in ``StateSummary``.
    """

    name: str
    place: str
    values: Mapping[str, Any]
    optional: bool = False

    def __str__(self) -> str:
        return f"{self.name} ({self.place})" if self.place else self.name

    def summarize(self) -> StateSummary:
        """Return what the master compares."""
        floats: list[float] = []
        rest = _without_floats(self.values, floats)
        text = json.dumps([rest, len(floats)], sort_keys=True)
        digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        name, place = (clip(one_line(each), _MAX_NAME) for each in (self.name, self.place))
        return StateSummary(name, place, digest, _means(floats), self.optional)


def _without_floats(value: Any, floats: list[float]) -> Any:
    if isinstance(value, float) and math.isfinite(value):
        floats.append(value)
        return None
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Mapping):
        return {name: _without_floats(value[name], floats) for name in sorted(value)}
    if isinstance(value, list):
        return [_without_floats(each, floats) for each in value]
    return value


def _means(numbers: list[float]) -> tuple[float, ...]:
    size = -(-len(numbers) // _MAX_NUMBERS) or 1
    parts = (numbers[at : at + size] for at in range(0, len(numbers), size))
    return tuple(sum(part) / len(part) for part in parts)
