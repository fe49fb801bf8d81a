"""Kinds of option values: how each is read, from text or from a Python value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Protocol

from edl.core import literals
from edl.core.quantities import parse_duration


@dataclass(frozen=True, slots=True)
class WorkerRange:
    """How many workers a job may have."""

    min: int
    max: int

    def __str__(self) -> str:
        return str(self.max) if self.min == self.max else f"{self.min}:{self.max}"


class Kind(Protocol):
    """Reads the values of one kind of option."""

    @property
    def metavar(self) -> str:
        """What stands for the value in a command's help; empty for a flag."""

    def read(self, value: object) -> object:
        """The value meant by a text or a Python value.

        Raises:
            ValueError: with a clause that says what is wrong.
        """


@dataclass(frozen=True, slots=True)
class Text:
    metavar: str = "TEXT"
    may_be_empty: bool = False

    def read(self, value: object) -> str:
        if isinstance(value, PurePath):
            value = str(value)
        if not isinstance(value, str):
            raise ValueError(f"it must be a text, and is {type(value).__name__}")
        if "\0" in value:
            raise ValueError("it has a NUL character")
        if not value.strip() and not self.may_be_empty:
            raise ValueError("it is empty")
        return value


@dataclass(frozen=True, slots=True)
class Texts:
    """One or more patterns: a text, or in Python also a list of texts."""

    metavar: str = "PATTERN"

    def read(self, value: object) -> tuple[str, ...]:
        if isinstance(value, (str, PurePath)):
            return (Text().read(value),)
        if not isinstance(value, Iterable):
            raise ValueError(f"it must be a text or a list, and is {type(value).__name__}")
        texts = tuple(Text().read(item) for item in value)
        if not texts:
            raise ValueError("it is empty")
        return texts


@dataclass(frozen=True, slots=True)
class Params:
    metavar: str = "NAME=VALUE,..."

    def read(self, value: object) -> str:
        if isinstance(value, dict):
            value = literals.format_params(value)
        text = Text(may_be_empty=True).read(value)
        literals.parse_params(text)
        return text


@dataclass(frozen=True, slots=True)
class Integer:
    min: int
    max: int = 2**31 - 1
    metavar: str = "N"

    def read(self, value: object) -> int:
        try:
            # True is an int to Python, and never a number to a person.
            if isinstance(value, bool) or not isinstance(value, (int, str)):
                raise ValueError
            number = int(value)
        except ValueError:
            raise ValueError(f"{value!r} is no whole number") from None
        if number < self.min:
            raise ValueError(f"{number} is too small; {self.min} is the least")
        if number > self.max:
            raise ValueError(f"{number} is too large; {self.max} is the most")
        return number


@dataclass(frozen=True, slots=True)
class Flag:
    metavar: str = ""

    def read(self, value: object) -> bool:
        if isinstance(value, bool):
            return value
        match str(value).strip().lower():
            case "1" | "true" | "yes" | "on":
                return True
            case "0" | "false" | "no" | "off":
                return False
            case _:
                raise ValueError(f"{value!r} is neither true nor false")


@dataclass(frozen=True, slots=True)
class Duration:
    metavar: str = "DURATION"

    def read(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise ValueError(f"{value!r} is no duration; write 90s, 15m or 2h30m")
        return parse_duration(str(value))


@dataclass(frozen=True, slots=True)
class Choice:
    values: tuple[str, ...]

    @property
    def metavar(self) -> str:
        return "|".join(self.values)

    def read(self, value: object) -> str:
        text = str(value).strip().lower()
        if text not in self.values:
            raise ValueError(f"{value!r} is none of {', '.join(self.values)}")
        return text


@dataclass(frozen=True, slots=True)
class Workers:
    most: int = 1000
    metavar: str = "N|MIN:MAX"

    def read(self, value: object) -> WorkerRange:
        if isinstance(value, WorkerRange):
            return value
        low, colon, high = str(value).partition(":")
        number = Integer(1, self.most)
        if not colon:
            workers = number.read(value)
            return WorkerRange(workers, workers)
        least, most = number.read(low), number.read(high)
        if least > most:
            raise ValueError(f"{value!r} has a minimum above its maximum; write {most}:{least}")
        return WorkerRange(least, most)
