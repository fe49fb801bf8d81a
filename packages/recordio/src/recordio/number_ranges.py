"""The sizes of the numbers in data, and the columns whose numbers have another unit elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass

import numpy as np
import numpy.typing as npt

MAX_FIELDS = 200
_MIN_KNOWN, _MIN_FOUND = 16, 8
"""Numbers without which nothing is said, of the known data and of the data compared with it."""
_ABOVE, _BELOW = 10, 30
"""So many times the known numbers, and so small a part of them, are another unit: a thousand for
another prefix, a hundred for percent, 255 for pixels."""
_MOSTLY_EMPTY, _HARDLY_EMPTY = 0.5, 0.05
"""Shares of records without a value: now at least, and in the known data at most."""
_SHOWN = 5
_GROWING = ("id", "index", "key", "number", "no", "time", "timestamp", "date", "year", "rowid")
"""Ends of the names of columns whose numbers grow with the data."""


@dataclass(frozen=True, slots=True)
class NumberRange:
    """The numbers of a column or feature, in a sample of the data.

    Attributes:
        low: the smallest one.
        high: the greatest one.
        usual: the median of their sizes without signs, zeros left out; 0: all are zeros.
        count: the numbers that are not zero.
        missing: the share of records without a number.
        rises: whether they are whole numbers that rise from record to record, as if they counted.
    """

    low: float
    high: float
    usual: float
    count: int
    missing: float
    rises: bool = False

    @property
    def greatest(self) -> float:
        """The greatest size without its sign."""
        return max(abs(self.low), abs(self.high))

    def __str__(self) -> str:
        return f"{self.low:,.6g} to {self.high:,.6g}"


def measure(records: Sequence[npt.NDArray[np.float64]]) -> NumberRange:
    """Return the range of a column or feature.

    Args:
        records: the numbers of each record, in the order of the data; empty: it has none.
    """
    values = np.concatenate(records)
    values = values[np.isfinite(values)]
    missing = sum(not len(each) for each in records) / len(records)
    rises = len(values) == len(records) > 1 and bool(np.all(np.diff(values) > 0))
    if not len(values):
        return NumberRange(0.0, 0.0, 0.0, 0, missing)
    sizes = np.abs(values[values != 0])
    usual = float(np.median(sizes)) if len(sizes) else 0.0
    rises = rises and bool(np.all(values == np.floor(values)))
    low, high = float(values.min()), float(values.max())
    return NumberRange(low, high, usual, len(sizes), missing, rises)


def compare_ranges(
    known: Mapping[str, NumberRange],
    found: Mapping[str, NumberRange],
    source: str,
    *,
    may_lack: bool = False,
) -> tuple[str, ...]:
    """Return sentences on columns with numbers of another size, and on those that have none.

    Args:
        source: what the known ranges are of, such as "the training data".
        may_lack: whether a column may be empty, as the labels of a prediction are.
    """
    shared = [name for name in known if name in found]
    others = [name for name in shared if _has_other_unit(name, known[name], found[name])]
    gone = [name for name in shared if _is_gone(known[name], found[name], may_lack)]
    notes = []
    if others:
        listed = (f"{name!r} has {found[name]}, in {source} {known[name]}" for name in others)
        notes.append(f"{_join(listed, len(others))}: are the units the same?")
    if gone:
        listed = (
            f"{name!r} has no value in {found[name].missing:.0%} of the records, in {source} in "
            f"{known[name].missing:.0%}"
            for name in gone
        )
        notes.append(f"{_join(listed, len(gone))}.")
    return tuple(notes)


def _has_other_unit(name: str, known: NumberRange, found: NumberRange) -> bool:
    if known.count < _MIN_KNOWN or found.count < _MIN_FOUND:
        return False
    if _counts(name) or (known.rises and found.rises):
        return False
    return found.usual > _ABOVE * known.greatest or found.greatest * _BELOW < known.usual


def _is_gone(known: NumberRange, found: NumberRange, may_lack: bool) -> bool:
    if known.count < _MIN_KNOWN or (may_lack and found.missing == 1):
        return False
    return found.missing >= _MOSTLY_EMPTY and known.missing <= _HARDLY_EMPTY


def _counts(name: str) -> bool:
    """Whether the numbers of a column with this name grow with the data."""
    last = "".join(
        f"_{sign}" if sign.isupper() and not before.isupper() else sign
        for before, sign in zip(f"_{name}", name, strict=False)
    )
    return last.replace("-", "_").replace(" ", "_").lower().rpartition("_")[2] in _GROWING


def _join(listed: Iterable[str], count: int) -> str:
    shown = [each for each, _ in zip(listed, range(_SHOWN), strict=False)]
    more = f"; and {count - _SHOWN} more" if count > _SHOWN else ""
    return "; ".join(shown) + more


def ranges_as_json(ranges: Mapping[str, NumberRange]) -> dict[str, list[float]]:
    """Return JSON-able values."""
    return {name: list(astuple(one)) for name, one in ranges.items()}


def ranges_from_json(values: Mapping[str, Sequence[float]]) -> dict[str, NumberRange]:
    """Return what ``ranges_as_json`` described. Raises: ValueError, TypeError: it is none of it."""
    return {
        str(name): NumberRange(
            float(low), float(high), float(usual), int(count), float(missing), bool(rises)
        )
        for name, (low, high, usual, count, missing, rises) in values.items()
    }
