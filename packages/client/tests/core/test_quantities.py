"""Durations, counts and sizes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.core import quantities


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("1.5m", 90),
        ("2h30m", 9000),
        ("1d", 86400),
        ("250ms", 0.25),
        (" 1H 5M ", 3900),
        ("0", 0),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert quantities.parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "soon", "5 fortnights", "-1", "1h-5m", "nan", "inf", "h", "1s2"]
)
def test_an_invalid_duration_is_explained(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        quantities.parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 m 00 s"),
        (185, "3 m 05 s"),
        (3599.6, "1 h 00 m"),
        (7620, "2 h 07 m"),
        (3 * 86400 + 4 * 3600, "3 d 04 h"),
        (-1, "?"),
        (math.nan, "?"),
        (math.inf, "?"),
    ],
)
def test_durations_are_written(seconds: float, text: str) -> None:
    assert quantities.duration(seconds) == text


@given(st.floats(min_value=0, max_value=1e7))
def test_a_written_duration_reads_back_near(seconds: float) -> None:
    again = quantities.parse_duration(quantities.duration(seconds))
    assert again == pytest.approx(seconds, rel=0.05, abs=0.06)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.97123, "0.9712"),
        (0.0, "0"),
        (1.0, "1"),
        (1e-7, "1.000e-07"),
        (123456.0, "123,456.0"),
        (1e9, "1.000e+09"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
    ],
)
def test_quantities_are_formatted(value: float, text: str) -> None:
    assert quantities.number(value) == text


def test_counts_rates_and_sizes_are_written() -> None:
    assert quantities.count(60000) == "60,000"
    assert [quantities.rate(x) for x in (2310.4, 3.42, 0.051, math.nan)] == [
        "2,310", "3.4", "0.051", "?",
    ]  # fmt: skip
    assert [quantities.size(x) for x in (512, 1400, 2e9, 5e13)] == [
        "512 B", "1.4 kB", "2.0 GB", "50.0 TB",
    ]  # fmt: skip
