"""The state of layers besides parameters, such as vocabularies: the same for all workers.

A worker takes this state from data or files when it loads the model file. If data or files have
changed since the job began, the worker's model would differ from the other workers' model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edl_master.core.failure import Failure

_RELATIVE, _ABSOLUTE = 1e-4, 1e-7
"""How far numbers may differ that two processors compute from the same data."""


@dataclass(frozen=True, slots=True)
class LayerSummary:
    """A summary of a layer's state.

    Attributes:
        name: class and name of the layer.
        place: file and line of the model file, for messages; empty if unknown.
        digest: of everything but floating numbers.
        numbers: the floating numbers.
    """

    name: str
    place: str
    digest: str
    numbers: tuple[float, ...] = ()

    def __str__(self) -> str:
        return f"{self.name} ({self.place})" if self.place else self.name

    def equals(self, other: LayerSummary) -> bool:
        """Return whether both are the same state, but for the last digits of numbers."""
        return (
            (self.name, self.digest) == (other.name, other.digest)
            and len(self.numbers) == len(other.numbers)
            and all(
                math.isclose(a, b, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)
                for a, b in zip(self.numbers, other.numbers, strict=True)
            )
        )


class AgreedLayerStates:
    """The state that the job's first worker had; all others are compared with it."""

    def __init__(self) -> None:
        self._states: dict[str, LayerSummary] | None = None

    def describe(self, states: tuple[LayerSummary, ...]) -> Failure | None:
        """Take the states from the first worker; compare those of all others with them.

        Returns:
            Why the worker cannot work for this job; None: it has the job's states.
        """
        mine = {state.name: state for state in states}
        if self._states is None:
            self._states = mine
        every = self._states | mine
        others = [
            str(every[name])
            for name in every
            if not _is_same(self._states.get(name), mine.get(name))
        ]
        if not others:
            return None
        has = "has" if len(others) == 1 else "have"
        return Failure(
            "MODEL_CONTRACT",
            f"{', '.join(others)} {has} another state in this worker than the job began with: the "
            "data or file that the model file reads has changed, or differs between machines",
            others[0],
            "Restore the data or file as it was, and continue with edl resume. To train with the "
            "new one, start another job. A file that the model file reads from its own folder is "
            "copied with the job.",
        )

    def snapshot(self) -> list[list[Any]] | None:
        """Return what survives the master as JSON-able values."""
        if self._states is None:
            return None
        return [[s.name, s.place, s.digest, list(s.numbers)] for s in self._states.values()]

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take the states from a snapshot of the job; those of earlier versions have none."""
        if (states := saved.get("layer_states")) is not None:
            self._states = {
                name: LayerSummary(name, place, digest, tuple(numbers))
                for name, place, digest, numbers in states
            }


def _is_same(one: LayerSummary | None, other: LayerSummary | None) -> bool:
    return one is not None and other is not None and one.equals(other)
