"""The process that ``edl serve`` runs in."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from edl.__main__ import run


def test_texts_have_the_hashes_that_they_had_in_the_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began: list[Any] = []

    def execute(*arguments: Any) -> None:
        began.append(arguments)
        raise SystemExit(0)

    monkeypatch.setattr(os, "execve", execute)
    monkeypatch.setattr(sys, "orig_argv", ["python", "edl", "serve", "model"])
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    with pytest.raises(SystemExit):
        run(["serve", "model"])
    ((_, command, environ),) = began
    assert command == ["python", "edl", "serve", "model"]
    assert environ["PYTHONHASHSEED"] == "0"
    assert environ["PATH"] == os.environ["PATH"]
