"""The state of a model besides parameters, such as vocabularies: the same for all workers.

A worker takes this state from data or files when it loads the model file. If data or files have
changed since the job began, the worker's model would differ from the other workers' model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edl_master.core.failure import Failure
from edl_runtime.model.close_numbers import are_close


@dataclass(frozen=True, slots=True)
class LayerSummary:
    """A summary of such a state.

    Attributes:
        name: class and name of a layer, or what else has this state.
        place: file and line of the model file, for messages; empty if unknown.
        digest: of everything but floating numbers.
        numbers: the floating numbers.
        optional: compared only with a worker of the same code that has the state, too.
    """

    name: str
    place: str
    digest: str
    numbers: tuple[float, ...] = ()
    optional: bool = False

    def __str__(self) -> str:
        return f"{self.name} ({self.place})" if self.place else self.name

    def equals(self, other: LayerSummary) -> bool:
        """Return whether both are the same state, but for the last digits of numbers."""
        same = (self.name, self.digest) == (other.name, other.digest)
        return same and are_close(self.numbers, other.numbers)


class AgreedLayerStates:
    """The state that the job's first worker had; all others are compared with it.

    Args:
        code: a digest of the model zoo; empty if unknown.
    """

    def __init__(self, code: str = "") -> None:
        self._code = code
        self._states: dict[str, LayerSummary] = {}
        self._is_known = False

    def describe(self, states: tuple[LayerSummary, ...]) -> Failure | None:
        """Take the states from the first worker; compare those of all others with them.

        Returns:
            Why the worker cannot work for this job; None: it has the job's states.
        """
        mine = {state.name: state for state in states}
        for name, state in mine.items():
            if state.optional or not self._is_known:
                self._states.setdefault(name, state)
        self._is_known = True
        every = self._states | mine
        others = [str(every[name]) for name in every if not self._has(name, mine.get(name))]
        if not others:
            return None
        has = "has" if len(others) == 1 else "have"
        return Failure(
            "MODEL_CONTRACT",
            f"{', '.join(others)} {has} another state in this worker than the job began with: "
            "data, a file or code outside the model zoo has changed, or differs between machines",
            others[0],
            "Restore it as it was, and continue with edl resume. To train with the new one, start "
            "another job. A file that the model file reads from its own folder is "
            "copied with the job.",
        )

    def _has(self, name: str, state: LayerSummary | None) -> bool:
        """Return whether a worker's state of a name, or that it has none, is that of the job."""
        known = self._states.get(name)
        if state is None:
            return known is not None and known.optional
        return known is not None and known.equals(state)

    def snapshot(self) -> dict[str, Any] | None:
        """Return what survives the master as JSON-able values."""
        if not self._is_known:
            return None
        states = [
            [s.name, s.place, s.digest, list(s.numbers), s.optional] for s in self._states.values()
        ]
        return {"code": self._code, "states": states}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take the states from a snapshot of the job; those of earlier versions have none."""
        found = saved.get("layer_states")
        if found is None:
            return
        if isinstance(found, list):  # of an earlier version
            found = {"code": "", "states": found}
        self._is_known = True
        for name, place, digest, numbers, *optional in found["states"]:
            if not any(optional) or found["code"] == self._code:
                state = LayerSummary(name, place, digest, tuple(numbers), any(optional))
                self._states[name] = state
