"""Ctrl-C ends a command, wherever the command is at that moment."""

from __future__ import annotations

import signal
import sys
import time

import pytest

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
