"""Kinds of option values: how each is read, from text or from a Python value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Protocol

from edl.core.quantities import parse_duration
from edl_runtime.model import model_params


@dataclass(frozen=True, slots=True)
class WorkerRange:
    """The numbers of workers that a job may have."""

    min: int
    max: int

    def __str__(self) -> str:
        return str(self.max) if self.min == self.max else f"{self.min}:{self.max}"


@dataclass(frozen=True, slots=True)
class StepRange:
    """Steps from ``first`` to ``last``, both included, counted from 1."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class WindowLength:
    """The length of a stream's windows: a number of records, or seconds; the other one is 0."""

    records: int = 0
    seconds: float = 0.0


class Kind(Protocol):
    """Reads the values of one kind of option."""

    @property
    def metavar(self) -> str:
        """Stands for the value in a command's help; empty for a flag."""

    @property
    def annotation(self) -> str:
        """The types of Python values that ``read`` takes, as source."""

    def read(self, value: object) -> object:
        """Return the value that a text or a Python value stands for.

        Raises:
            ValueError: the value is wrong; the message is a clause that says why.
        """


@dataclass(frozen=True, slots=True)
class Text:
    """Any UTF-8 text without a NUL character."""

    metavar: str = "TEXT"
    may_be_empty: bool = False
    annotation: str = "str"

    def read(self, value: object) -> str:
        if isinstance(value, PurePath):
            value = str(value)
        if not isinstance(value, str):
            raise ValueError(f"expected text, not {type(value).__name__}")
        if "\0" in value:
            raise ValueError("it contains a NUL character")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("it is not UTF-8") from None
        if not value.strip() and not self.may_be_empty:
            raise ValueError("it is empty")
        return value


_TO_FILE = (
    "; elasticdl.fit takes arrays and tables, or write values into a file, such as with "
    "recordio.Writer(FILE) or table.to_csv(FILE, index=False), and name the file"
)


@dataclass(frozen=True, slots=True)
class Texts:
    """One or more texts; every one is a value of its own, whatever signs it contains."""

    metavar: str = "PATTERN"
    annotation: str = "str | Sequence[str]"

    def read(self, value: object) -> tuple[str, ...]:
        if isinstance(value, (str, PurePath)):
            return (Text().read(value),)
        if not isinstance(value, Iterable):
            raise ValueError(f"expected text or a list, not {type(value).__name__}")
        if hasattr(value, "to_csv"):  # a table of pandas, which yields the names of its columns
            raise ValueError(f"expected text or a list, not {type(value).__name__}{_TO_FILE}")
        texts = tuple(self._read_item(item, value) for item in value)
        if not texts:
            raise ValueError("it is empty")
        return texts

    @staticmethod
    def _read_item(item: object, values: Iterable[object]) -> str:
        if not isinstance(item, (str, PurePath)):
            raise ValueError(
                f"expected text or a list of texts, not {type(values).__name__} of "
                f"{type(item).__name__}{_TO_FILE if hasattr(item, '__array__') else ''}"
            )
        return Text().read(item)


def find_repeated(words: Sequence[str]) -> str:
    """Return the first word that occurs twice; empty if none does."""
    return next((word for at, word in enumerate(words) if word in words[:at]), "")


@dataclass(frozen=True, slots=True)
class Names:
    """Names, separated by commas in a text.

    Attributes:
        values: the names that there are; empty: any.
    """

    metavar: str = "NAME,..."
    annotation: str = "str | Sequence[str]"
    values: tuple[str, ...] = ()

    def read(self, value: object) -> tuple[str, ...]:
        names = Texts().read(value.split(",") if isinstance(value, str) else value)
        names = tuple(name.strip() for name in names)
        if twice := find_repeated(names):
            raise ValueError(f"it contains the name {twice} twice")
        if unknown := [name for name in names if self.values and name not in self.values]:
            raise ValueError(f"{unknown[0]!r} is not one of {', '.join(self.values)}")
        return names


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters for a function of the model file, written as ``name=value,...`` or as a dict."""

    metavar: str = "NAME=VALUE,..."
    annotation: str = "str | dict[str, object]"

    def read(self, value: object) -> str:
        if isinstance(value, dict):
            value = model_params.format_params(value)
        text = Text(may_be_empty=True).read(value)
        model_params.parse_params(text)
        return text


@dataclass(frozen=True, slots=True)
class RateSetting:
    """A learning rate, written as ``learning-rate=RATE`` or as a dict."""

    metavar: str = "learning-rate=RATE"
    annotation: str = "str | Mapping[str, float]"

    def read(self, value: object) -> float:
        if isinstance(value, Mapping):
            value = ",".join(f"{key}={rate}" for key, rate in value.items())
        key, _, text = Text().read(value).partition("=")
        if key.strip().replace("_", "-") != "learning-rate":
            raise ValueError(f"{key.strip()} cannot be set, only learning-rate")
        try:
            rate = float(text)
        except ValueError:
            rate = math.nan
        if not 0 <= rate < math.inf:
            raise ValueError(f"{text!r} is not a learning rate")
        return rate


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer from ``min`` to ``max``."""

    min: int
    max: int = 2**31 - 1
    metavar: str = "N"
    annotation: str = "int"

    def read(self, value: object) -> int:
        try:
            # In Python, True is an int. A user who writes True does not mean 1.
            if isinstance(value, bool) or not isinstance(value, (int, str)):
                raise ValueError
            number = int(value)
        except ValueError:
            raise ValueError(f"{value!r} is not an integer") from None
        if number < self.min:
            raise ValueError(f"{number} is too small; the minimum is {self.min}")
        if number > self.max:
            raise ValueError(f"{number} is too large; the maximum is {self.max}")
        return number


@dataclass(frozen=True, slots=True)
class Flag:
    """Yes or no."""

    metavar: str = ""
    annotation: str = "bool"

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
    """A number of seconds, or a text such as 90s, 15m or 2h30m."""

    min_s: float = 0.0
    metavar: str = "DURATION"
    annotation: str = "str | float"

    def read(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise ValueError(f"{value!r} is not a duration; write 90s, 15m or 2h30m")
        seconds = parse_duration(str(value))
        if seconds < self.min_s:
            raise ValueError(f"{value} is too short; the minimum is {self.min_s:g}s")
        return seconds


@dataclass(frozen=True, slots=True)
class RecordsOrDuration:
    """A number of records, or a duration with its unit."""

    metavar: str = "RECORDS|DURATION"
    annotation: str = "int | str | WindowLength"

    def read(self, value: object) -> WindowLength:
        if isinstance(value, WindowLength):
            return value
        if str(value).isdigit():
            return WindowLength(records=Integer(1).read(value))
        if not isinstance(value, str) or not value[-1:].isalpha():
            raise ValueError(f"{value!r} is no window; write records or a duration: 10000, 60s")
        return WindowLength(seconds=Duration(1.0).read(value))


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words.

    Attributes:
        synonyms: other words that are understood, in lower case, and the values they stand for.
    """

    values: tuple[str, ...]
    synonyms: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def metavar(self) -> str:
        return "|".join(self.values)

    @property
    def annotation(self) -> str:
        quoted = ", ".join(f'"{value}"' for value in self.values)
        return f"Literal[{quoted}]"

    def read(self, value: object) -> str:
        text = str(value).strip().lower()
        if text in self.synonyms:
            return self.synonyms[text]
        if text not in self.values:
            raise ValueError(f"{value!r} is not one of {', '.join(self.values)}")
        return text


@dataclass(frozen=True, slots=True)
class Workers:
    """A number of workers, or a range of numbers."""

    max: int = 1000
    metavar: str = "N|MIN:MAX"
    annotation: str = "int | str | WorkerRange"

    def read(self, value: object) -> WorkerRange:
        if isinstance(value, WorkerRange):
            return value
        low, colon, high = str(value).partition(":")
        number = Integer(1, self.max)
        if not colon:
            workers = number.read(value)
            return WorkerRange(workers, workers)
        least, most = number.read(low), number.read(high)
        if least > most:
            raise ValueError(f"{value!r} has a minimum above its maximum; write {most}:{least}")
        return WorkerRange(least, most)


@dataclass(frozen=True, slots=True)
class Steps:
    """A range of steps, or the number of one."""

    most: int = 1000
    metavar: str = "FIRST:LAST"
    annotation: str = "int | str | StepRange"

    def read(self, value: object) -> StepRange:
        if isinstance(value, StepRange):
            return value
        first, colon, last = str(value).partition(":")
        number = Integer(1)
        start = number.read(first if colon else value)
        stop = number.read(last) if colon else start
        if start > stop:
            raise ValueError(f"{value!r} ends before it begins; write {stop}:{start}")
        if stop - start >= self.most:
            raise ValueError(f"{value!r} is more than {self.most} steps")
        return StepRange(start, stop)
