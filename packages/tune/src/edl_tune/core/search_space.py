"""The search space of a study: hyperparameters with their ranges, and how people write them.

``units=32,64,128`` and ``hidden_units=[64],[64, 32]`` are choices, ``layers=1..4`` a range,
``learning_rate=log:1e-4..1e-1`` a logarithmic one, and ``dropout=0..0.5/0.1`` one with steps.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from edl.plugins.errors import usage

Value: TypeAlias = bool | int | float | str | list[Any] | None
"""A value of a hyperparameter; lists are those of choices, such as ``[64, 32]``."""

_VALUES = (bool, int, float, str, list, type(None))

EXAMPLE = "--search units=32,64,128 --search learning_rate=log:1e-4..1e-1"

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_DASHED = re.compile(rf"({_NUMBER})\s*(?:-|:|to|\.{{3}})\s*({_NUMBER})")
_RANGE = re.compile(rf"(log:)?({_NUMBER})\.\.({_NUMBER})(?:/({_NUMBER}))?")


class ValueTarget(StrEnum):
    """The place that a value is for."""

    PARAMETER = "parameter"
    """A parameter of the model file, as with ``--params``."""
    HP = "hp"
    """What ``build_model(hp)`` asks for."""
    OPTION = "option"
    """An option of the job."""


@dataclass(frozen=True, slots=True)
class ValueRange:
    """The numbers from ``low`` to ``high``, both included; all integers or all floats."""

    low: float
    high: float
    step: float | None = None
    is_log: bool = False

    @property
    def is_integer(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def first(self) -> Value:
        return self.low

    @property
    def values(self) -> Sequence[Value] | None:
        """All values; None if there are too many to count."""
        if self.is_integer and not self.is_log:
            return list(range(int(self.low), int(self.high) + 1, int(self.step or 1)))
        if self.step is None:
            return None
        count = math.floor((self.high - self.low) / self.step + 1e-9)
        return [self.low + number * self.step for number in range(count + 1)]

    def __str__(self) -> str:
        step = f"/{self.step:g}" if self.step else ""
        return f"{'log:' if self.is_log else ''}{self.low:g}..{self.high:g}{step}"


@dataclass(frozen=True, slots=True)
class ValueChoice:
    """One of some values, which have no order."""

    values: tuple[Value, ...]

    @property
    def first(self) -> Value:
        return self.values[0]

    def __str__(self) -> str:
        return ",".join(map(str, self.values))


@dataclass(frozen=True, slots=True)
class Hyperparameter:
    """One dimension of the search space.

    Attributes:
        name: as the model file has it.
        conditions: other hyperparameters, and the values with which this one is searched.
    """

    name: str
    domain: ValueRange | ValueChoice
    target: ValueTarget = ValueTarget.PARAMETER
    conditions: tuple[tuple[str, tuple[Value, ...]], ...] = ()

    def is_searched(self, values: Mapping[str, Value]) -> bool:
        """Return whether this is searched, given the values of those before it."""
        return all(values.get(of) in allowed for of, allowed in self.conditions)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for ``from_dict`` and for JSON."""
        if isinstance(self.domain, ValueChoice):
            domain: dict[str, Any] = {"type": "choice", "values": list(self.domain.values)}
        else:
            domain = {
                "type": "int" if self.domain.is_integer else "float",
                "low": self.domain.low,
                "high": self.domain.high,
                "step": self.domain.step,
                "log": self.domain.is_log,
            }
        conditions = [[of, list(values)] for of, values in self.conditions]
        return {"name": self.name, "target": str(self.target), **domain, "conditions": conditions}


def from_dict(fields: Mapping[str, Any]) -> Hyperparameter:
    """Return a hyperparameter from plain values; those of workers have no target: it is ``hp``."""
    domain: ValueRange | ValueChoice
    if fields["type"] == "choice":
        domain = ValueChoice(tuple(fields["values"]))
    else:
        kind = int if fields["type"] == "int" else float
        step = fields.get("step")
        domain = ValueRange(
            kind(fields["low"]),
            kind(fields["high"]),
            None if step is None else kind(step),
            bool(fields.get("log")),
        )
    conditions = tuple((of, tuple(values)) for of, values in fields.get("conditions", ()))
    return Hyperparameter(
        fields["name"], domain, ValueTarget(fields.get("target", "hp")), conditions
    )


def read_texts(
    texts: Iterable[str], where: str = "--search"
) -> dict[str, ValueRange | ValueChoice]:
    """Return the domains of texts such as ``units=32,64,128``, by name.

    Raises:
        Problem: USAGE.
    """
    found: dict[str, ValueRange | ValueChoice] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise usage(f"{text!r} has no name", where=where, remedy=f"For example: {EXAMPLE}")
        if name in found:
            raise usage(f"{name} is given twice", where=f"{where} {name}", remedy="Keep one.")
        found[name] = read_domain(values, f"{where} {name}")
    return found


def read_domain(value: object, where: str) -> ValueRange | ValueChoice:
    """Return a domain: a text such as ``log:1e-4..1e-1`` or ``32,64``, or a list of values.

    Raises:
        Problem: USAGE.
    """
    if isinstance(value, list | tuple):
        return _choice(list(value), where)
    text = str(value).strip()
    if ".." not in text and not text.startswith("log:"):
        if ends := _DASHED.fullmatch(text):
            raise usage(
                f"{text!r} is no range",
                where=where,
                remedy=f"Write two dots: {ends[1]}..{ends[2]}, or log:{ends[1]}..{ends[2]}.",
            )
        return _choice(_literals(text), where)
    matched = _RANGE.fullmatch(text)
    if matched is None:
        raise usage(
            f"{text!r} is no range",
            where=where,
            remedy="Write 1..4, 0..0.5/0.1 with steps, or log:1e-4..1e-1.",
        )
    log, *texts = matched.groups()
    numbers = [float(number) for number in texts if number is not None]
    if all(isinstance(_literal(number), int) for number in texts if number is not None):
        numbers = [int(number) for number in numbers]
    low, high, step = (*numbers, None)[:3]
    assert low is not None, "the pattern has two numbers"
    assert high is not None, "the pattern has two numbers"
    domain = ValueRange(low, high, step, bool(log))
    if fault := _fault_of(domain):
        raise usage(
            f"the range {text} {fault}", where=where, remedy="Correct its ends or its step."
        )
    return domain


def _fault_of(domain: ValueRange) -> str:
    if domain.low > domain.high:
        return f"is empty: {domain.low:g} is more than {domain.high:g}"
    if domain.step is not None and domain.step <= 0:
        return "has a step that is not above 0"
    if domain.is_log and domain.step is not None:
        return "is logarithmic and has a step; list its values instead"
    return "is logarithmic and begins at 0 or below" if domain.is_log and domain.low <= 0 else ""


def _choice(values: Sequence[Any], where: str) -> ValueChoice:
    if not values:
        raise usage("there are no values", where=where, remedy=f"For example: {EXAMPLE}")
    for value in values:
        if not isinstance(value, _VALUES):
            raise usage(
                f"{value!r} is no number, text or list", where=where, remedy="Write simple values."
            )
        if values.count(value) > 1:
            raise usage(f"{value!r} is there twice", where=where, remedy="Keep one.")
    return ValueChoice(tuple(values))


def _literal(text: str) -> Value:
    """Return the number, the text in quotes, True, False or None; any other text as it is."""
    word = text.strip()
    try:
        value = ast.literal_eval({"true": "True", "false": "False"}.get(word, word))
    except (ValueError, SyntaxError):
        return word
    return value if isinstance(value, _VALUES) else word


def _literals(text: str) -> list[Value]:
    """Return the values of a text with commas: ``32, 64``, ``adam, sgd`` or ``[64], [64, 32]``."""
    try:
        return list(ast.literal_eval(f"[{text}]"))
    except (ValueError, SyntaxError):  # words without quotes
        return [_literal(part) for part in text.split(",") if part.strip()]


def grid_of(space: Sequence[Hyperparameter]) -> dict[str, Sequence[Value]]:
    """Return all values of each hyperparameter. Raises: Problem: USAGE, a range has no steps."""
    grid: dict[str, Sequence[Value]] = {}
    for each in space:
        values = each.domain.values
        if values is None:
            raise usage(
                f"{each.name} has no steps, so a grid of it has no end",
                where=f"--search {each.name}={each.domain}",
                remedy="List its values, as in 0.001,0.01,0.1; or give it a step: 0..0.5/0.1.",
            )
        grid[each.name] = values
    return grid


def describe(values: Mapping[str, Value]) -> str:
    """Return values in one line: ``units=64, learning_rate=0.00312``."""
    return ", ".join(f"{name}={show_value(value)}" for name, value in values.items())


def show_value(value: object) -> str:
    """Return a value in few characters."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
