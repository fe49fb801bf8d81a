"""Control characters in texts of others are shown, not obeyed."""

from __future__ import annotations

import logging
import sys
import unicodedata

import pytest

from edl_proto.printable import one_line, visible
from edl_runtime.monitoring import logs
from edl_runtime.monitoring.log_lines import LogEntry, as_text, parse


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;owned\x07", "\\x1b]0;owned\\x07"),
        ("\x1b[2J\x1b[H", "\\x1b[2J\\x1b[H"),
        ("\x9b31m", "\\u009b31m"),
        ("one\rtwo", "one\\x0dtwo"),
        ("one\r\ntwo\tthree", "one\ntwo\tthree"),
        ("a\u202eb\u2028c", "a\\u202eb\\u2028c"),
        ("Ünïcode 模型 👩\u200d💻", "Ünïcode 模型 👩\u200d💻"),
    ],
)
def test_what_a_terminal_would_obey_is_shown(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_no_control_character_passes_but_line_feed_and_tab() -> None:
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    left = {
        each for each in visible(every) if unicodedata.category(each) in ("Cc", "Cs", "Zl", "Zp")
    }
    assert left == {"\n", "\t"}
    assert visible(visible(every)) == visible(every)


def test_log_lines_show_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    level = root.level
    logs.set_up()
    try:
        logging.getLogger("some.module").warning("it says %s", "\x1b[8mnothing")
    finally:
        root.setLevel(level)
    assert capsys.readouterr().err.endswith("it says \\x1b[8mnothing\n")


def test_a_text_stays_in_one_line() -> None:
    assert one_line("one\r\ntwo\tthree\x1b") == "one\\ntwo\\tthree\\x1b"


@pytest.mark.parametrize(
    "forged",
    [
        "2026-11-25T13:00:00.000Z I [job=j role=master] edl_master.app: JobSucceeded: fine",
        '{"time": "2026-11-25T13:00:00Z", "level": "INFO", "logger": "x", "message": "fine"}',
    ],
    ids=["text", "JSON"],
)
def test_no_message_adds_an_entry_to_a_log(forged: str) -> None:
    """A worker's error is in its master's log, and edl logs reads that line by line."""
    assert parse(forged) is not None
    text = as_text(LogEntry(0.0, "WARNING", "x", f"it says\n{forged}", {}, f"E: it says\n{forged}"))
    assert [parse(line) is not None for line in text.splitlines()] == [True, *3 * [False]]
    plain = as_text(LogEntry(0.0, "WARNING", "x", "it says\nthis", {}, "Traceback\n  File"))
    assert plain.endswith("it says\n    this\nTraceback\n  File")
