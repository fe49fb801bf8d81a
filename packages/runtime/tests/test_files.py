"""Files are replaced whole, or stay as they were."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from edl_runtime.files import read_regular, replace_file


def test_a_reader_sees_the_old_content_or_the_new(tmp_path: Path) -> None:
    path = tmp_path / "file"
    contents = [bytes([letter]) * 100_000 for letter in b"ab"]
    replace_file(path, contents[0])
    stopped = threading.Event()
    seen: set[bytes] = set()

    def read() -> None:
        while not stopped.is_set():
            seen.add(path.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    for turn in range(100):
        replace_file(path, contents[turn % 2])
    stopped.set()
    reader.join()
    assert seen <= set(contents)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        replace_file(tmp_path / "nowhere" / "file", b"new")
    directory = tmp_path / "file"
    directory.mkdir()
    (directory / "inside").write_text("old")
    with pytest.raises(OSError, match="directory"):
        replace_file(directory, b"new", durable=True)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_private_file_is_private_from_its_first_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[int] = []
    replace = Path.replace

    def note(path: Path, target: Path) -> Path:
        modes.append(path.stat().st_mode & 0o777)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", note)
    mask = os.umask(0o022)
    try:
        replace_file(tmp_path / "key", b"secret", is_private=True)
        replace_file(tmp_path / "status", b"open")
    finally:
        os.umask(mask)
    assert modes == [0o600, 0o644]


@pytest.mark.timeout(60)  # it would wait for ever
def test_only_regular_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    assert read_regular(tmp_path / "file") == b"content"
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(OSError, match="the path is not a regular file"):
            read_regular(place)
