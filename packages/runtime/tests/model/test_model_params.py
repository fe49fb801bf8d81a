"""Parameters: literals, and nothing that runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl_runtime.model.model_params import ParamsError, format_params, parse_params


def test_the_documents_example() -> None:
    assert parse_params("hidden_units=[10, 100, 20, 5], learning_rate=0.01") == {
        "hidden_units": [10, 100, 20, 5],
        "learning_rate": 0.01,
    }


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", {}),
        ("  ", {}),
        ("a=1,", {"a": 1}),
        ("a='x, y=2'", {"a": "x, y=2"}),
        ("a=-1, b=None, c={'k': (1, 2)}", {"a": -1, "b": None, "c": {"k": (1, 2)}}),
        ("a=1, # note", {"a": 1}),
        ("a=1,\n  b={'x': (1, 2)}", {"a": 1, "b": {"x": (1, 2)}}),
        ("a=1e-3", {"a": 1e-3}),
    ],
)
def test_literals_are_read(text: str, values: dict[str, object]) -> None:
    assert parse_params(text) == values


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1", "has no name"),
        ('{"units": 8, "name": "a"}', "is a dictionary; write units=8, name='a'"),
        ("{1: 8}", "has no name"),
        ("a", "has no name"),
        ("a=", "name=value"),
        ("a=1 b=2", "name=value"),
        ("a=1, a=2", "appears twice"),
        ("**{'a': 1}", "not of the form name=value"),
        ("a=open", "not a literal: open; write 'open'"),
        ("a=true", "write True"),
        ("a=null", "write None"),
        ("a=1e999", "the value of a is not finite: 1e999; write a finite number"),
        ("a=[1, -1e999]", "not finite: 1e999"),
        ("a={'k': 1e999j}", "not finite: 1e999j"),
        ("a=nan", "not finite: nan; write a finite number"),
        ("a=-inf", "not finite: inf"),
        ("a=np.NaN", "not finite: np.NaN"),
        ("a=float('-inf')", "not finite: float('-inf')"),
        ("a=1; b=2", "name=value"),
        ("lr=__import__('os').getpid()", "lr"),
        ("a=b", "not a literal"),
        ("a=[x for x in range(3)]", "not a literal"),
        ("a=1)+f(b=2", "name=value"),
        ("a=1)(b=2", "name=value"),
        ("a=1); import os; f(b=2", "name=value"),
        ("a=" + "(" * 500, "name=value"),
    ],
)
def test_what_is_no_literal_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        parse_params(text)


def test_nothing_is_ever_run(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    with pytest.raises(ValueError, match="not a literal"):
        parse_params(f"a=open({str(trace)!r}, 'w')")
    assert not trace.exists()


def test_an_error_knows_the_column() -> None:
    with pytest.raises(ParamsError) as caught:
        parse_params("ok=1, bad=open")
    assert caught.value.column == "ok=1, bad=open".index("open") + 1


_plain = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
)
_names = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True).map(lambda name: f"p_{name}")


@given(st.dictionaries(_names, _plain | st.lists(_plain, max_size=3), max_size=4))
def test_what_is_written_reads_back(values: dict[str, object]) -> None:
    finite = {k: v for k, v in values.items() if "inf" not in repr(v)}
    assert parse_params(format_params(finite)) == finite
