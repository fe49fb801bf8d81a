"""Texts in files and pipes that users name: none is waited for that has no writer."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from edl.adapters import input_files
from edl.adapters.input_files import open_input, read_input


@pytest.fixture
def pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(input_files, "_WRITER_S", 0.1)
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


@pytest.mark.timeout(60)  # it would wait for ever
def test_a_pipe_without_a_writer_is_refused(pipe: Path) -> None:
    with pytest.raises(OSError, match="no process writes to this pipe"):
        open_input(pipe)


def test_a_writer_takes_its_time(pipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_files, "_WRITER_S", 200.0)

    def write() -> None:
        with pipe.open("wb", buffering=0) as written:
            written.write(b"hun")
            time.sleep(0.2)  # as a program that asks a person
            written.write(b"ter2\n")

    writing = threading.Thread(target=write)
    writing.start()
    assert read_input(pipe) == b"hunter2\n"
    writing.join()


def test_a_text_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_files, "MAX_INPUT_BYTES", 1 << 20)
    with pytest.raises(OSError, match="more than 1 MiB"):
        read_input(Path("/dev/zero"))
