"""Columns whose numbers have another unit than those of the known data are named."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from recordio.number_ranges import (
    NumberRange,
    compare_ranges,
    measure,
    ranges_as_json,
    ranges_from_json,
)

Numbers = npt.NDArray[np.float64]
RANDOM = np.random.default_rng(3)
PIXELS = [RANDOM.integers(0, 256, 64) * (RANDOM.random(64) > 0.7) for _ in range(64)]
KNOWN: dict[str, list[Numbers]] = {
    "income": list(RANDOM.uniform(20_000, 100_000, (64, 1)).round(-2)),
    "size_cm": list(RANDOM.uniform(150, 200, (64, 1))),
    "percent": list(RANDOM.uniform(0, 100, (64, 1))),
    "normal": list(RANDOM.normal(size=(64, 1))),
    "wide": list(RANDOM.lognormal(0, 2, (64, 1))),
    "flag": list(RANDOM.integers(0, 2, (64, 1)).astype(float)),
    "image": [each.astype(float) for each in PIXELS],
    "user_id": list(RANDOM.permutation(64).reshape(64, 1).astype(float)),
}


def compare(change: Callable[[str, Numbers], Numbers], *names: str, rows: int = 64) -> list[str]:
    """Return the sentences on columns of data that is changed."""
    known, found = {}, {}
    for name in names or KNOWN:
        again = RANDOM.permutation(np.array(KNOWN[name]))[:rows]
        for into, values in ((known, KNOWN[name]), (found, [change(name, one) for one in again])):
            into[name] = measure(values)
    return list(compare_ranges(known, ranges_from_json(ranges_as_json(found)), "the training data"))


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("income", 1000),
        ("income", 1 / 1000),
        ("size_cm", 1 / 100),
        ("percent", 1 / 100),
        ("normal", 1000),
        ("normal", 1 / 1000),
        ("image", 1 / 255),
    ],
)
def test_another_unit_is_named_with_both_ranges(name: str, factor: float) -> None:
    (note,) = compare(lambda _, one: one * factor, name, rows=16)
    assert note.startswith(f"'{name}' has ")
    assert "in the training data" in note
    assert note.endswith("are the units the same?")


def test_ranges_are_written_for_people() -> None:
    known = {"a": NumberRange(20_000.0, 100_000.0, 50_000.0, 64, 0.0)}
    found = {"a": NumberRange(20.0, 100.5, 50.0, 64, 0.0)}
    (note,) = compare_ranges(known, found, "x")
    assert note == "'a' has 20 to 100.5, in x 20,000 to 100,000: are the units the same?"


@pytest.mark.parametrize(
    ("why", "change"),
    [
        ("the same", lambda _, one: one),
        ("a few times more", lambda _, one: one * 4),
        ("a few times less", lambda _, one: one / 4),
        ("zeros", lambda _, one: one * 0),
        ("a column that counts", lambda name, one: one + 1e6 if name == "user_id" else one),
    ],
)
def test_right_data_needs_no_word(why: str, change: Callable[[str, Numbers], Numbers]) -> None:
    assert compare(change) == [], why


def test_few_records_say_nothing() -> None:
    assert compare(lambda _, one: one * 1000, "income", rows=5) == []


def test_numbers_that_count_the_records_of_both_may_be_larger() -> None:
    known, later, fractions = (
        {"row": measure([np.array([at * step + begin]) for at in range(50)])}
        for begin, step in ((1.0, 1.0), (5_000.0, 1.0), (5_000.0, 0.7))
    )
    assert not compare_ranges(known, later, "x")
    assert compare_ranges(known, fractions, "x")


def test_a_column_that_is_mostly_empty_is_named() -> None:
    def empty(_: str, one: Numbers) -> Numbers:
        return one[:0] if one[0] > 30_000 else one

    (note,) = compare(empty, "income")
    assert "'income' has no value in" in note
    assert note.endswith("in the training data in 0%.")
    gone = {"income": NumberRange(0.0, 0.0, 0.0, 0, 1.0)}
    known = {"income": NumberRange(1.0, 9.0, 5.0, 64, 0.0)}
    assert compare_ranges(known, gone, "x")
    assert not compare_ranges(known, gone, "x", may_lack=True), "labels of a prediction"
