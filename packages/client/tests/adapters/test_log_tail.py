"""The end of a log, however long it and its lines are."""

from __future__ import annotations

from pathlib import Path

import pytest

from edl.adapters import log_tail
from edl.adapters.log_tail import Tail, tail


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.mark.parametrize("lines", [1, 7, 2999, 3000, 5000])
def test_as_many_last_lines_as_are_asked_for(log: Path, lines: int) -> None:
    written = [f"{number} {'x' * 200}" for number in range(3000)]
    log.write_text("".join(f"{line}\n" for line in written))
    assert log.stat().st_size > 2 * log_tail._CHUNK
    assert list(Tail(log, lines).read()) == written[-lines:]


@pytest.mark.parametrize("chunk", [1, 2, 3, 1000])
def test_empty_and_unfinished_lines_count(
    log: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(log_tail, "_CHUNK", chunk)
    log.write_text("a\n\nbc\nd")
    for lines, last in enumerate([[], ["d"], ["bc", "d"], ["", "bc", "d"], ["a", "", "bc", "d"]]):
        assert list(Tail(log, lines).read(final=True)) == last
    log.write_text("")
    assert list(Tail(log, 3).read(final=True)) == []


def test_a_line_that_is_being_written_is_given_once_and_whole(log: Path) -> None:
    log.write_text("one\ntw")
    following = Tail(log, 2)
    assert list(following.read()) == ["one"]
    with log.open("a") as file:
        file.write("o\nthree\n")
    assert list(following.read()) == ["two", "three"]


def test_what_comes_after_no_line_at_all(log: Path) -> None:
    following = Tail(log, 0)
    log.write_text("one\n")
    assert list(following.read()) == ["one"]
    following = Tail(log, 0)
    assert list(following.read()) == []


def test_a_line_without_end_is_given_in_parts(log: Path) -> None:
    log.write_bytes(b"x" * (5 * log_tail._MAX_LINE_BYTES // 2) + b"\nlast\n")
    *parts, last = Tail(log, 2).read()
    assert last == "last"
    assert [len(part) for part in parts] == [1 << 20, 1 << 20, 1 << 19]


def test_a_message_has_a_part_of_a_long_log(log: Path) -> None:
    log.write_bytes(b"x" * 3 * log_tail._CHUNK + b"\nlast\n")
    assert tail(log, 1) == "last"
    assert len(tail(log, 5)) <= log_tail._CHUNK
    assert tail(log, 0) == tail(log.with_name("none"), 5) == ""
