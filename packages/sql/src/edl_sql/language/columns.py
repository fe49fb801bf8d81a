"""The clause COLUMN of ``edl sql``: columns to learn from, and functions that prepare them.

    COLUMN age, BUCKET(wage, [1000, 5000]), EMBEDDING(CATEGORY_HASH(town, 1000), 8)

The functions are those of SQLFlow. A model gets them as lists: ``["BUCKET", "wage", [1000]]``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from edl.plugins.errors import Problem
from edl.plugins.texts import did_you_mean
from edl_sql.language.clauses import ClauseReader

_COMBINERS = ("sum", "mean", "sqrtn")
_MAX_CATEGORIES = 10_000
"""How many categories may each be an input of a network; more need an embedding."""


@dataclass(frozen=True, slots=True)
class ColumnFunction:
    """A function of columns.

    Attributes:
        name: in capitals.
        of: the columns, or functions of columns.
        arguments: the others, as values of Python.
    """

    name: str
    of: tuple[ColumnTerm, ...]
    arguments: tuple[object, ...] = ()


ColumnTerm = str | ColumnFunction


def columns_in(terms: Sequence[ColumnTerm]) -> Iterator[str]:
    """Yield the names of the columns that terms use, repeated as they occur."""
    for term in terms:
        if isinstance(term, str):
            yield term
        else:
            yield from columns_in(term.of)


def as_lists(term: ColumnTerm) -> object:
    """Return a term in the form that models get."""
    if isinstance(term, str):
        return term
    of = [as_lists(each) for each in term.of]
    inner = of if term.name == "CROSS" else of[0]
    return [term.name, inner, *term.arguments]


@dataclass(frozen=True, slots=True)
class _Form:
    """How a function is called.

    Attributes:
        usage: an example.
        least, most: number of arguments behind the column.
        of: functions that may be in place of the column.
    """

    usage: str
    least: int
    most: int
    of: tuple[str, ...] = ()


_NUMBERS = ("NUMERIC", "DENSE")
_CATEGORIES = ("BUCKET", "CATEGORY_ID", "CATEGORY_HASH", "CROSS")
_FORMS = {
    "NUMERIC": _Form("NUMERIC(age)", 0, 1),
    "DENSE": _Form("DENSE(age)", 0, 1),
    "BUCKET": _Form("BUCKET(age, [18, 40, 65])", 1, 1, _NUMBERS),
    "CATEGORY_ID": _Form("CATEGORY_ID(month, 13)", 1, 1),
    "CATEGORY_HASH": _Form("CATEGORY_HASH(town, 1000)", 1, 1),
    "CROSS": _Form("CROSS([age, town], 1000)", 1, 1, ("BUCKET", "CATEGORY_ID", "CATEGORY_HASH")),
    "INDICATOR": _Form("INDICATOR(town)", 0, 0, _CATEGORIES),
    "EMBEDDING": _Form("EMBEDDING(town, 8)", 1, 2, _CATEGORIES),
}


_SPLIT = "edl splits no texts: select the values as columns of their own, or as an array."
_NEAREST = dict.fromkeys(("SPARSE", "SEQ_CATEGORY_ID", "WEIGHTED_CATEGORY"), _SPLIT)
"""Functions of SQLFlow that edl lacks, and what to do."""


def read_terms(reader: ClauseReader) -> tuple[ColumnTerm, ...]:
    """Read the terms after COLUMN.

    Raises:
        Problem: one of them is wrong.
    """
    found = [_term(reader, tuple(_FORMS))]
    while reader.accept(","):
        found.append(_term(reader, tuple(_FORMS)))
    return tuple(found)


def _term(reader: ClauseReader, allowed: Sequence[str]) -> ColumnTerm:
    start = reader.index
    name = reader.read_name("a column")
    if not reader.accept("("):
        return name
    function = name.upper()
    form = _FORMS.get(function)
    if form is None or function not in allowed:
        known = ", ".join(allowed) or "none"
        what = "there is no function" if form is None else "there can be no function"
        meant = _NEAREST.get(function) or did_you_mean(function, allowed)
        remedy = meant or f"Functions here are {known}."
        raise _at(reader, start, f"{what} {name} here", remedy)
    of = _operands(reader, function, form)
    arguments: list[object] = []
    places = []
    while reader.accept(","):
        places.append(reader.index)
        arguments.append(reader.read_value(function))
    if not reader.accept(")"):
        raise reader.mistake(f"expected a comma or ) in {name}", 0, f"For example: {form.usage}")
    found = ColumnFunction(function, of, tuple(arguments))
    check_arguments(reader, start, found, places, is_input="INDICATOR" in allowed)
    return found


def check_arguments(
    reader: ClauseReader,
    start: int,
    found: ColumnFunction,
    places: Sequence[int] = (),
    *,
    is_input: bool,
) -> None:
    """Check what a function is of, and number and values of its arguments.

    Args:
        start: index of the function's word.
        places: those of its arguments; by default errors mark the function.
        is_input: each of its categories is an input of the network.

    Raises:
        Problem: one is wrong.
    """
    form = _FORMS[found.name]
    for inner in found.of:
        if isinstance(inner, ColumnFunction) and inner.name not in form.of:
            raise _at(reader, start, f"{found.name} cannot be of {inner.name}", _like(form))
    if not form.least <= len(found.arguments) <= form.most:
        has_delimiter = len(found.arguments) == 2 and found.arguments[1] == ","
        remedy = _SPLIT if has_delimiter else _like(form)
        raise _at(reader, start, f"{found.name} has the wrong number of arguments", remedy)
    for number, (argument, check) in enumerate(
        zip(found.arguments, _CHECKS[found.name], strict=False)
    ):
        wrong = check(argument)
        if wrong:
            place = places[number] if places else start
            raise _at(reader, place, f"{found.name}: {wrong}", _like(form))
    _check_size(reader, start, found, is_input)


def _operands(reader: ClauseReader, function: str, form: _Form) -> tuple[ColumnTerm, ...]:
    if function != "CROSS":
        return (_term(reader, form.of),)
    if not reader.accept("["):
        raise reader.mistake("CROSS takes a list of columns", 0, _like(form))
    found = [_term(reader, form.of)]
    while reader.accept(","):
        found.append(_term(reader, form.of))
    if not reader.accept("]"):
        raise reader.mistake("expected a comma or ] in CROSS", 0, _like(form))
    if len(found) < 2:
        raise reader.mistake("CROSS needs two columns at least", -1, _like(form))
    return tuple(found)


def _check_size(reader: ClauseReader, start: int, found: ColumnFunction, is_input: bool) -> None:
    """Refuse too many categories where each of them is an input of the network."""
    is_input = found.name in ("CATEGORY_ID", "CATEGORY_HASH", "CROSS") and is_input
    inner = found.of[0] if found.name == "INDICATOR" else found if is_input else None
    if not isinstance(inner, ColumnFunction) or inner.name == "BUCKET":
        return
    size = inner.arguments[0]
    if isinstance(size, int) and size > _MAX_CATEGORIES:
        raise _at(
            reader,
            start,
            f"{size} categories would each be an input of the network",
            f"Use EMBEDDING({inner.name}(…, {size}), 8), or {_MAX_CATEGORIES} at most.",
        )


def _at(reader: ClauseReader, place: int, what: str, remedy: str) -> Problem:
    reader.index = place
    return reader.mistake(what, 0, remedy)


def _like(form: _Form) -> str:
    return f"For example: {form.usage}"


def _size(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return ""
    return f"{value!r} is not an integer of 1 or more"


def _bounds(value: object) -> str:
    if not isinstance(value, list) or not value:
        return "the bounds must be a list of numbers"
    if not all(isinstance(each, int | float) and not isinstance(each, bool) for each in value):
        return "the bounds must be numbers"
    if any(after <= before for before, after in pairwise(value)):
        return "the bounds must increase"
    return ""


def _combiner(value: object) -> str:
    return "" if value in _COMBINERS else f"{value!r} is not one of {', '.join(_COMBINERS)}"


_CHECKS = {
    "NUMERIC": (_size,),
    "DENSE": (_size,),
    "BUCKET": (_bounds,),
    "CATEGORY_ID": (_size,),
    "CATEGORY_HASH": (_size,),
    "CROSS": (_size,),
    "INDICATOR": (),
    "EMBEDDING": (_size, _combiner),
}
