"""Which files are read: those that end, and that no other process is waited for."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

import recordio
from recordio.storage.files import is_regular


def test_regular_files(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "full").write_bytes(b"x")
    (tmp_path / "link").symlink_to("full")
    assert [is_regular(str(tmp_path / name)) for name in ("empty", "full", "link")] == [True] * 3


@pytest.mark.timeout(60)  # to read any of them may take forever
def test_pipes_sockets_devices_and_files_of_the_kernel(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(tmp_path / "socket"))
    for place in (tmp_path / "pipe", tmp_path / "socket", "/dev/zero", "/proc/uptime", tmp_path):
        assert not is_regular(str(place)), place


@pytest.mark.timeout(60)
def test_a_file_of_the_kernel_is_no_source() -> None:
    with pytest.raises(recordio.UnreadableFile, match="the path is not a regular file"):
        recordio.open_source("/proc/uptime", format="csv").count()
