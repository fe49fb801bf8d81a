"""Files are replaced whole, or stay as they were."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from edl_master.adapters.files import replace_file, storage_error
from edl_proto.v1 import error_pb2


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


def test_a_full_disk_differs_from_one_that_may_not_be_written() -> None:
    full = storage_error(OSError(errno.ENOSPC, "No space left on device"), "/a/b")
    assert full.code == error_pb2.DISK_FULL
    assert "/a/b" in full.what
    denied = storage_error(PermissionError(errno.EACCES, "Permission denied"), "/a/b")
    assert denied.code == error_pb2.OUTPUT_UNWRITABLE
    assert "Permission denied" in denied.what
