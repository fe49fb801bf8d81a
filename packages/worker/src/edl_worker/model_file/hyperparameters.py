"""``build_model(hp)``: the values that a model file asks for by name, as with KerasTuner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

PARAMETER = "hp"
"""The name of the parameter that gets a ``HyperParameters``, if it has no default."""

_MORE = ("sampling", "default", "ordered", "parent_name", "parent_values")
"""The arguments of KerasTuner's methods that are given by name."""


class HyperParameters:
    """The hyperparameters of one model, with the interface of ``keras_tuner.HyperParameters``.

    Each method returns the value of this model: the one that was given, or the default. The value
    is None if its condition does not hold. ``more`` are KerasTuner's other arguments.

    Args:
        given: values by name; some may never be asked for, because the model does not need them.

    Attributes:
        asked: what was asked for, by name, ready for JSON: its range or values, and conditions.
        values: the values that the model has got so far, by name.
    """

    def __init__(self, given: Mapping[str, Any] | None = None) -> None:
        self._given = dict(given or {})
        self._scopes: list[str] = []
        self._conditions: list[tuple[str, list[Any]]] = []
        self.asked: dict[str, dict[str, Any]] = {}
        self.values: dict[str, Any] = {}

    def Int(
        self, name: str, min_value: int, max_value: int, step: int | None = None, **more: Any
    ) -> Any:
        """Return an integer between two, both included."""
        low, high = int(min_value), int(max_value)
        return self._ask(name, _range("int", low, high, step, more), low, more)

    def Float(
        self, name: str, min_value: float, max_value: float, step: float | None = None, **more: Any
    ) -> Any:
        """Return a number between two, both included."""
        low, high = float(min_value), float(max_value)
        return self._ask(name, _range("float", low, high, step, more), low, more)

    def Choice(self, name: str, values: Sequence[Any], **more: Any) -> Any:
        """Return one of some values."""
        if not values:
            raise ValueError(f"hp.Choice({name!r}) has no values")
        return self._ask(name, {"type": "choice", "values": list(values)}, values[0], more)

    def Boolean(self, name: str, default: bool = False, **more: Any) -> Any:
        """Return True or False."""
        return self._ask(name, {"type": "choice", "values": [False, True]}, default, more)

    def Fixed(self, name: str, value: Any, **more: Any) -> Any:
        """Return a value that is not searched."""
        return self._ask(name, {"type": "choice", "values": [value]}, value, more)

    def get(self, name: str) -> Any:
        """Return a value that was asked for before. Raises: KeyError: it was not."""
        return self.values[self._full(name)]

    def __contains__(self, name: str) -> bool:
        return self._full(name) in self.values

    @contextmanager
    def conditional_scope(self, parent_name: str, parent_values: Any) -> Iterator[None]:
        """Ask within only for models in which another hyperparameter has one of some values."""
        self._conditions.append((self._full(parent_name), _make_list(parent_values)))
        try:
            yield
        finally:
            self._conditions.pop()

    @contextmanager
    def name_scope(self, name: str) -> Iterator[None]:
        """Put ``name/`` before all names within."""
        self._scopes.append(name)
        try:
            yield
        finally:
            self._scopes.pop()

    def _ask(self, name: str, domain: dict[str, Any], default: Any, more: Mapping[str, Any]) -> Any:
        if unknown := more.keys() - set(_MORE):
            raise TypeError(f"hp.{name} has an unexpected argument {min(unknown)!r}")
        if more.get("default") is not None:
            default = more["default"]
        conditions = list(self._conditions)
        if more.get("parent_name") is not None:
            values = _make_list(more.get("parent_values"))
            conditions.append((self._full(more["parent_name"]), values))
        full = self._full(name)
        shown = [[of, values] for of, values in conditions]
        self.asked.setdefault(
            full, {"name": full, **domain, "default": default, "conditions": shown}
        )
        if not all(self.values.get(of) in values for of, values in conditions):
            return None
        self.values[full] = self._given.get(full, default)
        return self.values[full]

    def _full(self, name: str) -> str:
        return "/".join((*self._scopes, name))


def _range(
    kind: str, low: float, high: float, step: float | None, more: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a range; with steps, one that is logarithmic is a list, as each step multiplies."""
    is_log = more.get("sampling") == "log"
    if low > high or (is_log and low <= 0):
        why = "is empty" if low > high else "is logarithmic and begins at 0 or below"
        raise ValueError(f"the range from {low} to {high} {why}")
    if is_log and step is not None and step > 1:
        values = [low]
        while values[-1] * step <= high:
            values.append(values[-1] * step)
        return {"type": "choice", "values": values}
    return {"type": kind, "low": low, "high": high, "step": step, "log": is_log}


def _make_list(values: Any) -> list[Any]:
    return list(values) if isinstance(values, list | tuple) else [values]
