"""Times, levels and order of the lines of a job's logs."""

from __future__ import annotations

import pytest

from edl.core.job_log import JobLogLine, LogChoice, LogFilter, LogReader, merge_by_time, parse_since
from edl_runtime.monitoring.log_lines import LogEntry, as_json, as_text


def log_line(at_s: float, level: str = "INFO", message: str = "x") -> str:
    return as_json(LogEntry(at_s, level, "a", message))


def read(*texts: str) -> list[JobLogLine]:
    reader = LogReader("worker 1")
    return [reader.read(text) for text in texts]


def test_a_line_without_time_and_level_has_those_of_the_line_before() -> None:
    found = read("first", log_line(5.0, "WARNING"), "printed", log_line(6.0), "more")
    assert [(line.at_s, line.level) for line in found] == [
        (0.0, "INFO"),
        (5.0, "WARNING"),
        (5.0, "WARNING"),
        (6.0, "INFO"),
        (6.0, "INFO"),
    ]


def test_the_heading_of_a_start_has_a_time_and_begins_anew() -> None:
    found = read(log_line(5.0, "ERROR"), "--- 1970-01-01T01:00:09+0100 worker 1, start 2", "here")
    assert [(line.at_s, line.level) for line in found[1:]] == [(9.0, "INFO")] * 2


@pytest.mark.parametrize(
    "text",
    [
        "Traceback (most recent call last):",
        "Fatal Python error: Segmentation fault",
        "F0000 00:00:1700000000.000001  12 x.cc:1] Check failed",
        "2026-11-24 04:12:23.123456: F tensorflow/core/x.cc:1] Check failed",
    ],
)
def test_last_words_are_errors(text: str) -> None:
    assert [line.level for line in read(log_line(1.0), text, "  below")] == [
        "INFO",
        "ERROR",
        "ERROR",
    ]


def test_the_platform_s_time_is_for_lines_without_one() -> None:
    reader = LogReader("master")
    assert reader.read("printed", at_s=7.0).at_s == 7.0
    assert reader.read(log_line(8.0), at_s=9.0).at_s == 8.0


def test_sources_are_merged_by_time_and_keep_their_own_order() -> None:
    one = read(
        log_line(1.0, message="a"),
        log_line(4.0, message="b"),
        log_line(2.0, message="clock set back"),
    )
    two = read(log_line(3.0, message="c"), log_line(5.0, message="d"))
    shown = [line.entry.message for line in merge_by_time([one, two]) if line.entry]
    assert shown == ["a", "c", "b", "clock set back", "d"]


@pytest.mark.parametrize(
    ("choice", "sources"),
    [
        (LogChoice(), ["master", "worker 1", "worker 11", "server 1"]),
        (LogChoice("master"), ["master"]),
        (LogChoice("worker"), ["worker 1", "worker 11"]),
        (LogChoice("server"), ["server 1"]),
        (LogChoice(worker=1), ["worker 1"]),
    ],
)
def test_sources_are_chosen_by_role_or_number(choice: LogChoice, sources: list[str]) -> None:
    every = ("master", "worker 1", "worker 11", "server 1")
    assert [source for source in every if choice.includes(source)] == sources


def test_lines_are_left_out_by_level_and_by_time() -> None:
    lines = read(
        log_line(1.0, "ERROR"),
        log_line(2.0),
        log_line(3.0, "WARNING"),
        "below",
        log_line(4.0, "DEBUG"),
    )
    shown = LogFilter(since_s=2.0, level="WARNING").shows
    assert [line.text for line in filter(shown, lines)] == [lines[2].text, "below"]
    assert all(map(LogFilter().shows, lines))


def test_since_takes_durations_and_times() -> None:
    assert parse_since("15m", 1000.0) == 100.0
    assert parse_since("1970-01-01T00:01:00Z", 1000.0) == 60.0
    assert parse_since("1970-01-01 00:01:00", 1000.0) == 60.0
    with pytest.raises(ValueError, match=r"'noon' is neither .* write 15m"):
        parse_since("noon", 1000.0)


def test_lines_as_text_are_read_as_well() -> None:
    entry = LogEntry(1.0, "ERROR", "a", "why", {"job": "x", "worker": 1})
    (line,) = read(as_text(entry))
    assert (line.entry, line.level) == (entry, "ERROR")
