"""Ctrl-C ends a command, wherever the command is at that moment."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest
from conftest import Edl, eventually

from edl import __main__
from edl.__main__ import repeat_interrupt


class InterruptedFinalizer:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def test_an_interrupt_in_a_finalizer_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "unraisablehook", repeat_interrupt)
    InterruptedFinalizer()
    with pytest.raises(KeyboardInterrupt):
        time.sleep(30)


def test_other_exceptions_there_are_shown_as_usual(capfd: pytest.CaptureFixture[str]) -> None:
    class Defect:
        def __del__(self) -> None:
            raise ValueError("a defect")

    hook, sys.unraisablehook = sys.unraisablehook, repeat_interrupt
    Defect()
    sys.unraisablehook = hook
    assert "a defect" in capfd.readouterr().err


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def test_an_interrupt_before_the_command_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(__main__, "_open_closed_streams", interrupt)
    with pytest.raises(SystemExit) as end:
        __main__.main()
    assert end.value.code == 130


def test_little_is_loaded_before_interrupts_are_caught() -> None:
    count = "import sys; old = set(sys.modules); import edl.__main__; print(*{*sys.modules} - old)"
    done = subprocess.run([sys.executable, "-c", count], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {
        *("edl", "edl.__main__", "edl.core", "edl.core.exit_numbers", "__future__")
    }


def test_an_interrupt_while_the_master_starts_says_what_is_left(tidy: Edl) -> None:
    tidy.part = "mute"
    starting = tidy.start(*tidy.job("--name", "barely"))
    spec = tidy.job_dir("barely") / "supervision.json"
    eventually(spec.exists, "its supervisor has started a master")
    starting.send_signal(signal.SIGINT)
    _, err = starting.communicate(timeout=200)
    assert starting.returncode == 130
    assert "the job barely was not started" in err
    assert "edl resume barely" in err
    assert "Traceback" not in err
