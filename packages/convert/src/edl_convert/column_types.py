"""Columns of text: what their cells are, and which of them are wanted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from edl.plugins.errors import Problem, usage
from edl.plugins.texts import did_you_mean

_LEADING_ZERO = re.compile(r"[+-]?0[0-9]")
# A number with separators, a decimal comma, a currency or a percent sign; no leading zeros.
_WRITTEN_NUMBER = re.compile(
    r"[^\w,.]{0,3}(?!0\d)\d{1,3}(?:[., ']?\d{3})*(?:[.,]\d+)?\s*[^\w,.]{0,3}"
)
_MANY_CLASSES, _LARGE_PART = 20, 0.9
_INT64 = range(-(2**63), 2**63)


class Cell(IntEnum):
    """The kinds of cells; a column is of the greatest kind among its cells."""

    EMPTY = 0
    INT = 1
    FLOAT = 2
    TEXT = 3


def cell_kind(text: str) -> Cell:
    """Return the kind of a cell's text. ``nan`` and ``inf`` are floats; ``1_000`` is text.

    Identifiers that would change as numbers are text, too: ``007``, and integers beyond 64 bits.
    """
    stripped = text.strip()
    if not stripped:
        return Cell.EMPTY
    if "_" in stripped or _LEADING_ZERO.match(stripped):
        return Cell.TEXT
    try:
        return Cell.INT if int(stripped) in _INT64 else Cell.TEXT
    except ValueError:
        pass
    try:
        float(stripped)
    except ValueError:
        return Cell.TEXT
    return Cell.FLOAT


def column_kind(known: Cell, cells: Iterable[str]) -> Cell:
    """Return the kind of a column after more of its cells."""
    if known is Cell.TEXT:
        return known
    return max(known, *map(cell_kind, cells))


def read_cell(text: str, kind: Cell) -> int | float | bytes | None:
    """Return the value of a cell in a column of this kind; None if it is empty."""
    stripped = text.strip()
    match kind:
        case Cell.TEXT:
            return text.encode()
        case _ if not stripped:
            return None
        case Cell.INT:
            return int(stripped)
        case _:
            return float(stripped)


def find_written_number(names: Sequence[str]) -> str | None:
    """Return the text that keeps labels from being numbers; None if they are names of classes.

    Args:
        names: all different labels of a column that is not of numbers alone.
    """
    if len(names) < _MANY_CLASSES:
        return None
    plain = [name for name in names if cell_kind(name) in (Cell.INT, Cell.FLOAT)]
    other = [name for name in names if cell_kind(name) is Cell.TEXT]
    written = [name for name in other if _WRITTEN_NUMBER.fullmatch(name.strip())]
    if len(plain) + len(written) < _LARGE_PART * len(names):
        return None
    return written[0] if written else other[0] if other else None


def write_number(text: str) -> str:
    """Return how to write a number, or what is in its place, so that it is read as a number."""
    if re.fullmatch(r"[^\d,.]*\d+,\d+[^\d,.]*", text.strip()):
        return "Write decimal points instead of commas, and no thousands separators"
    if _WRITTEN_NUMBER.fullmatch(text.strip()):
        return "Write plain numbers: no separators, currencies or percent signs"
    return "Leave these rows out, or give them numbers"


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which columns become which features, in the order of the file.

    Attributes:
        places: positions of the wanted columns.
        names: the features' names, one for each.
        label: position within these, or None.
    """

    places: tuple[int, ...]
    names: tuple[str, ...]
    label: int | None


def choose(header: Sequence[str], wanted: Sequence[str], label: str, where: str) -> Chosen:
    """Pick columns by name.

    Args:
        wanted: names of the columns to keep; all, if there are none.
        label: the column that becomes the feature ``label``; empty for none.

    Raises:
        Problem: a name is missing from the header, or is there twice.
    """
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise Problem(
            "DATA_UNREADABLE",
            f"the header has the column {twice[0]!r} twice",
            where=where,
            remedy="Give every column a different name.",
        )
    if any(not name.strip() and (not wanted or name in wanted) for name in header):
        raise Problem(
            "DATA_UNREADABLE",
            "a column of the header has no name",
            where=where,
            remedy="Name it, or choose the others with --columns.",
        )
    for option, names in (("--columns", wanted), ("--label", [label] if label else [])):
        for name in names:
            if name not in header:
                near = did_you_mean(name, header)
                raise usage(
                    f"there is no column {name!r}, which {option} names",
                    where=where,
                    remedy=near or f"Columns: {', '.join(header)}",
                )
    kept = [name for name in header if not wanted or name in wanted or name == label]
    features = tuple("label" if label and name == label else name for name in kept)
    if len(set(features)) < len(features):
        raise usage(
            f"--label {label} would make two features named label",
            where=where,
            remedy="Leave the column label out with --columns.",
        )
    return Chosen(
        tuple(header.index(name) for name in kept),
        features,
        kept.index(label) if label else None,
    )


def number_classes(
    names: Iterable[str], known: Mapping[str, int] | None = None
) -> Mapping[str, int]:
    """Return the known numbers of classes; if there are none, from 0 in alphabetical order.

    Raises:
        Problem: a name is not among the known ones.
    """
    if known:
        others = sorted(set(names) - known.keys())
        if others:
            raise usage(
                f"the class {others[0]!r} has no number in the file of --labels",
                where="--labels",
                remedy="Leave its records out, or train a new model with this class.",
            )
        return known
    return {name: number for number, name in enumerate(sorted(set(names)))}
