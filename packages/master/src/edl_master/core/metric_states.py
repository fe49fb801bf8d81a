"""The states of metrics that evaluation tasks have counted, in arrays that add up.

Arrays are never changed in place, so that sums can be computed outside of the job lock. A sum has
64 bits whatever the dtype of its metric: float32 stops counting at 2^24.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from edl_master.core.failure import Failure

Array: TypeAlias = npt.NDArray[Any]

_SUM_DTYPES = {"b": np.int64, "i": np.int64, "u": np.uint64, "f": np.float64}


class MetricStateMismatch(Exception):
    """Metric states of two tasks cannot be added; carries the failure for the user."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(what)
        self.failure = Failure(
            "MODEL_CONTRACT",
            f"Metric {name!r} has {what} in different evaluation tasks.",
            remedy="A metric's variables must keep their shape and dtype while they are updated.",
        )


@dataclass(frozen=True, slots=True, eq=False)
class Addable:
    """Numbers that add up element by element.

    Attributes:
        dtype: that of the metric's variable.
        values: of this dtype, or 64 bits wide if they are a sum.
    """

    dtype: str
    values: Array

    @property
    def narrow(self) -> Array:
        """The values in the dtype of the metric's variable."""
        with np.errstate(all="ignore"):
            return self.values.astype(self.dtype, copy=False)


@dataclass(frozen=True, slots=True, eq=False)
class MetricState:
    """State variables of one metric."""

    name: str
    variables: tuple[Addable, ...]


MetricStates: TypeAlias = tuple[MetricState, ...]
"""The states of all metrics, of one task or of several together."""


def add_up(addends: Iterable[MetricStates]) -> MetricStates:
    """Add states of the same names element by element.

    Raises:
        MetricStateMismatch: the variables of a metric differ in number, shape or dtype.
    """
    total: dict[str, MetricState] = {}
    for states in addends:
        for state in states:
            before = total.get(state.name)
            total[state.name] = _add(before, state) if before else state
    return tuple(total.values())


def check_addable(one: MetricState, other: MetricState) -> None:
    """Check that two states of a metric can be added; this reads none of their numbers.

    Raises:
        MetricStateMismatch: their variables differ in number, shape or dtype.
    """
    if len(one.variables) != len(other.variables):
        raise MetricStateMismatch(one.name, "different numbers of variables")
    for a, b in zip(one.variables, other.variables, strict=True):
        if (a.dtype, a.values.shape) != (b.dtype, b.values.shape):
            shapes = f"{a.dtype}{list(a.values.shape)} and {b.dtype}{list(b.values.shape)}"
            raise MetricStateMismatch(one.name, f"variables of {shapes}")


def _add(one: MetricState, other: MetricState) -> MetricState:
    check_addable(one, other)
    variables = []
    for a, b in zip(one.variables, other.variables, strict=True):
        wide = _SUM_DTYPES[a.values.dtype.kind]
        with np.errstate(all="ignore"):
            values = np.asarray(np.add(a.values, b.values, dtype=wide))
        variables.append(Addable(a.dtype, values))
    return MetricState(one.name, tuple(variables))


# --- snapshots -----------------------------------------------------------------------------


def states_to_document(states: MetricStates) -> list[dict[str, Any]]:
    """Describe states by plain values and arrays, without a copy of the arrays."""
    return [
        {"name": s.name, "variables": [{"dtype": v.dtype, "values": v.values} for v in s.variables]}
        for s in states
    ]


def states_from_document(document: Iterable[dict[str, Any]]) -> MetricStates:
    """Read states from what became of ``states_to_document`` in JSON."""
    return tuple(
        MetricState(
            state["name"],
            tuple(Addable(v["dtype"], _array_from_json(v["values"])) for v in state["variables"]),
        )
        for state in document
    )


def array_to_json(array: object) -> dict[str, Any]:
    """Encode an array exactly; the ``default`` of ``json.dumps`` for a job's snapshot."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{type(array).__name__} has no place in a snapshot")
    content = b64encode(array.tobytes()).decode()
    return {"dtype": array.dtype.str, "shape": array.shape, "content": content}


def _array_from_json(saved: dict[str, Any]) -> Array:
    array: Array = np.frombuffer(b64decode(saved["content"]), saved["dtype"])
    return array.reshape(saved["shape"])
