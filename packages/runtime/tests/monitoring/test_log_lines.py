"""A line of a log is read as it was written, in either form."""

from __future__ import annotations

import json

import pytest

from edl_proto.printable import visible
from edl_runtime.monitoring.log_lines import LogEntry, as_json, as_text, parse, readable

FULL = LogEntry(
    1700000000.25,
    "WARNING",
    "some.module",
    "it waits: for {what}",
    {"job": "digits", "role": "worker", "worker": 1, "task": "training/1/4"},
)
BARE = LogEntry(1700000000.0, "INFO", "root", "")
HOSTILE = LogEntry(
    0.5, "ERROR", "a", 'one\ntwo \x1b[2J\u202e\x9b "quoted" \\ 模型', {}, "Traceback\n\x07"
)


@pytest.mark.parametrize("line", [FULL, BARE])
def test_text_is_read_as_it_was_written(line: LogEntry) -> None:
    assert parse(as_text(line)) == line


@pytest.mark.parametrize("line", [FULL, BARE, HOSTILE])
def test_json_is_read_as_it_was_written(line: LogEntry) -> None:
    assert parse(as_json(line)) == line


def test_a_terminal_obeys_neither_form() -> None:
    for written in (as_json(HOSTILE), as_text(HOSTILE)):
        assert written == visible(written)
    assert "\n" not in as_json(HOSTILE)
    assert as_text(HOSTILE).splitlines()[1:] == [
        '    two \\x1b[2J\\u202e\\u009b "quoted" \\ 模型',
        "Traceback",
        "\\x07",
    ]


def test_no_text_of_others_passes_for_a_line_of_its_own() -> None:
    """A message may hold the name of a file, which may have any characters."""
    forged = "e\n03:14:06 JobSucceeded: fine\n[master] forged"
    written = as_text(
        LogEntry(0.0, "INFO", "a", forged, {}, f"Traceback\n{forged}\n{as_json(BARE)}")
    )
    own = "03:14", "[master]", "{"
    assert not [line for line in written.splitlines() if line.startswith(own)]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "epoch 1 of 2",
        "{'loss': 0.5}",
        '{"loss": 0.5}',
        '{"time": "yesterday", "level": "INFO", "message": "x"}',
        '{"time": "2026-11-24T04:12:23Z", "level": 3, "message": "x"}',
        "{" + '"a":[' * 100000,
        '{"time": "9999-12-31T23:59:59-23:59", "level": "INFO", "message": "x"}',
        '{"time": "9999-12-31T23:59:59.999999Z", "level": "INFO", "message": "x"}',
        '{"time": "0001-01-01T00:00:00+23:59", "level": "INFO", "message": "x"}',
        '{"time": "2026-11-24T04:12:23Z", "level": "INFO", "message": "x", "n": '
        + "9" * 9999
        + "}",
        "2026-11-24 04:12:23.123456: W tensorflow/core/x.cc:1] careful",
        "2026-13-44T04:12:23.123Z I some.module: no such day",
    ],
)
def test_what_libraries_and_users_print_is_no_line_of_edl(line: str) -> None:
    assert parse(line) is None
    assert readable(line) == line


def test_a_number_that_is_too_long_for_python_is_a_text() -> None:
    number = "9" * 9999
    found = parse(f"2026-11-24T04:12:23.123Z I [worker={number} task=7] a: x")
    assert found is not None
    assert found.facts == {"worker": number, "task": 7}


def test_json_is_made_readable_and_the_rest_stays() -> None:
    failed = LogEntry(0.0, "ERROR", "a.b", "it failed", {}, "Traceback:\n  x\nValueError: why")
    assert readable("\n".join(["printed", as_json(failed), as_text(BARE)])).splitlines() == [
        "printed",
        "1970-01-01T00:00:00.000Z E a.b: it failed",
        "Traceback:",
        "  x",
        "ValueError: why",
        as_text(BARE),
    ]


def test_a_line_whose_beginning_was_cut_off_shows_its_end() -> None:
    """The kubelet cuts the message of a container that has ended in this way."""
    failed = LogEntry(0.0, "ERROR", "a", "m", {}, 'File "x.py"\n\x01ValueError: \u202e "why"')
    whole = as_json(failed)
    text = whole.index("File")
    for start in (1, text - len('"exception": "'), *range(text, whole.index("ValueError"))):
        assert readable(whole[start:]).endswith('ValueError: \\u202e "why"'), whole[start:]


def test_levels_in_small_letters_are_known() -> None:
    line = json.dumps({"time": "1970-01-01T00:00:00Z", "level": "info", "message": "x"})
    found = parse(line)
    assert found is not None
    assert (found.level, found.message) == ("INFO", "x")
