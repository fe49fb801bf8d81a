"""What a person at a terminal sees: a live display, and Ctrl-C."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from conftest import Edl

CTRL_C = b"\x03"
END_OF_INPUT = b"\x04"

# Makes the pseudo terminal the one that Ctrl-C comes from, and becomes edl.
TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""

PATIENT = """
from edl.__main__ import main
from edl.cli import submit
submit.STOP_WINDOW_S = 300.0
main()
"""
"""Edl, which waits long for a second Ctrl-C: a test on a busy machine may take its time."""


class Terminal:
    """A command with a pseudo terminal as its standard streams."""

    def __init__(self, edl: Edl, *args: str, program: str = "", **env: str) -> None:
        python = ("-c", program) if program else ("-m", "edl")
        self._master, slave = pty.openpty()
        self.child = subprocess.Popen(
            [sys.executable, "-c", TAKE_TERMINAL, *python, *args],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**edl.env, "TERM": "xterm", "COLUMNS": "100", "LINES": "40", **env},
            cwd=edl.place,
            start_new_session=True,
        )
        os.close(slave)
        self.seen = ""

    def read_until(self, what: Callable[[str], bool], timeout: float = 200) -> str:
        """Everything written so far, once it is as asked for."""
        deadline = time.monotonic() + timeout
        while not what(self.seen):
            if time.monotonic() > deadline:
                raise AssertionError(f"never seen in:\n{self.seen}")
            if select.select([self._master], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self._master, 65536).decode(errors="replace")
                except OSError:  # the other side is closed
                    break
        return self.seen

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def end(self) -> int:
        """Read to the end, and give the exit code."""
        deadline = time.monotonic() + 200
        while time.monotonic() < deadline:
            try:
                if chunk := os.read(self._master, 65536):
                    self.seen += chunk.decode(errors="replace")
                    continue
            except OSError:  # the other side is closed
                pass
            return self.child.wait(timeout=200)
        raise AssertionError(f"it does not end:\n{self.seen}")


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "")


@pytest.fixture
def job(tidy: Edl) -> tuple[str, ...]:
    tidy.part = "endless"
    return tidy.job("--name", "shown", "--num-workers", "2")


def test_progress_redraws_itself(tidy: Edl, job: tuple[str, ...]) -> None:
    terminal = Terminal(tidy, *job)
    seen = terminal.read_until(lambda text: "loss 0.5" in text and "worker 1" in text)
    assert "\x1b[" in seen
    text = plain(seen)
    assert "/1,000 records" in text
    assert "20.0/s" in text
    assert "ETA 1 h 00 m" in text
    tidy("stop", "shown")
    assert terminal.end() == 8
    assert "error: the job was stopped" in plain(terminal.seen)
    # The display is gone at the end, and the cursor is back.
    assert terminal.seen.rfind("\x1b[?25h") > terminal.seen.rfind("\x1b[?25l")


def test_no_color_means_no_color(tidy: Edl, job: tuple[str, ...]) -> None:
    terminal = Terminal(tidy, *job, NO_COLOR="1")
    terminal.read_until(lambda text: "loss 0.5" in text)
    tidy("stop", "shown")
    terminal.end()
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", terminal.seen)


def test_a_dumb_terminal_gets_plain_lines(tidy: Edl, job: tuple[str, ...]) -> None:
    terminal = Terminal(tidy, *job, TERM="dumb")
    terminal.read_until(lambda text: "of 1,000 records" in text)
    tidy("stop", "shown")
    terminal.end()
    assert "\x1b" not in terminal.seen


def test_one_ctrl_c_leaves_the_job(tidy: Edl, job: tuple[str, ...]) -> None:
    terminal = Terminal(tidy, *job)
    terminal.read_until(lambda text: "loss 0.5" in text)
    terminal.press(CTRL_C)
    terminal.read_until(lambda text: "again within 2 s" in text)
    assert terminal.end() == 130
    assert "edl logs -f shown" in plain(terminal.seen)
    assert "Traceback" not in terminal.seen
    assert tidy("status", "shown", "-o", "json").json["state"] == "RUNNING"
    tidy("stop", "shown")


def test_a_second_ctrl_c_stops_the_job(tidy: Edl, job: tuple[str, ...]) -> None:
    terminal = Terminal(tidy, *job, program=PATIENT)
    terminal.read_until(lambda text: "loss 0.5" in text)
    terminal.press(CTRL_C)
    terminal.read_until(lambda text: "again within 300 s" in text)
    terminal.press(CTRL_C)
    assert terminal.end() == 8
    assert "stopping shown" in plain(terminal.seen)
    assert tidy("status", "shown", "-o", "json").json["state"] == "CANCELLED"


def test_delete_asks_and_takes_no_for_an_answer(tidy: Edl) -> None:
    tidy(*tidy.job("--name", "asked"))
    terminal = Terminal(tidy, "delete", "asked")
    terminal.read_until(lambda text: "Delete asked" in text)
    terminal.press(b"n\n")
    assert terminal.end() == 8
    assert "asked is kept" in plain(terminal.seen)
    assert "Traceback" not in terminal.seen
    assert tidy.job_dir("asked").exists()
    terminal = Terminal(tidy, "delete", "asked")
    terminal.read_until(lambda text: "Delete asked" in text)
    terminal.press(END_OF_INPUT)
    assert terminal.end() == 8
    assert tidy.job_dir("asked").exists()
    terminal = Terminal(tidy, "delete", "asked")
    terminal.read_until(lambda text: "Delete asked" in text)
    terminal.press(b"y\n")
    assert terminal.end() == 0
    assert not tidy.job_dir("asked").exists()


def test_top_is_live_until_the_end(tidy: Edl, job: tuple[str, ...]) -> None:
    tidy(*job, "--detach")
    terminal = Terminal(tidy, "top", "shown")
    terminal.read_until(lambda text: "HEARTBEAT" in text)
    tidy("stop", "shown")
    assert terminal.end() == 0
    assert "cancelled" in plain(terminal.seen)
