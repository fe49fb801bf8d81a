"""Profiles arrive in pieces, are limited, and lie where TensorBoard looks."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from edl_master.adapters import profiles
from edl_master.adapters.profiles import ProfileFiles
from edl_proto.errors import EdlError, ErrorCode

CONTENT = bytes(range(256)) * 50
PACKED = gzip.compress(CONTENT)
HALF = len(PACKED) // 2


@pytest.fixture
def files(tmp_path: Path) -> ProfileFiles:
    return ProfileFiles(tmp_path, "digits")


def add_and_return_error(files: ProfileFiles, packed: bytes, offset: int = 0) -> tuple[int, str]:
    with pytest.raises(EdlError) as raised:
        files.add(3, offset, packed, last=True)
    return raised.value.code, raised.value.remedy


def test_a_profile_lies_where_the_plugin_looks(files: ProfileFiles, tmp_path: Path) -> None:
    assert files.add(3, 0, PACKED[:HALF], last=False) is None
    path = files.add(3, HALF, PACKED[HALF:], last=True)
    assert path == tmp_path / "plugins" / "profile" / "digits" / "worker-3.xplane.pb"
    assert path.read_bytes() == CONTENT
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_repeated_piece_and_a_new_beginning_change_nothing(files: ProfileFiles) -> None:
    files.add(3, 0, b"of a worker that has died", last=False)
    files.add(3, 0, PACKED[:HALF], last=False)
    files.add(3, HALF, PACKED[HALF:-1], last=False)
    path = files.add(3, HALF, PACKED[HALF:], last=True)
    assert path is not None
    assert path.read_bytes() == CONTENT


def test_the_last_piece_may_be_repeated_too(files: ProfileFiles) -> None:
    """The reply to it may be lost."""
    files.add(3, 0, PACKED[:HALF], last=False)
    path = files.add(3, HALF, PACKED[HALF:], last=True)
    assert files.add(3, HALF, PACKED[HALF:], last=True) is None
    assert path is not None
    assert path.read_bytes() == CONTENT
    with pytest.raises(EdlError):
        files.add(4, HALF, PACKED[HALF:], last=True)


def test_workers_do_not_mix(files: ProfileFiles) -> None:
    files.add(3, 0, PACKED[:HALF], last=False)
    assert files.add(4, 0, PACKED, last=True) is not None
    path = files.add(3, HALF, PACKED[HALF:], last=True)
    assert path is not None
    assert path.read_bytes() == CONTENT


def test_a_worker_is_told_of_once_however_many_profiles_it_makes_up(files: ProfileFiles) -> None:
    path = files.add(3, 0, gzip.compress(b"first"), last=True)
    assert path is not None
    for number in range(100):
        content = b"made up %d" % number
        assert files.add(3, 0, gzip.compress(content), last=True) is None
        assert path.read_bytes() == content
    assert files.add(4, 0, PACKED, last=True) is not None


def test_what_is_not_whole_is_refused(files: ProfileFiles) -> None:
    again = "Profile the steps once more."
    assert add_and_return_error(files, PACKED, offset=7) == (ErrorCode.DATA_DAMAGED, again)
    assert add_and_return_error(files, b"no profile") == (ErrorCode.DATA_DAMAGED, again)
    assert add_and_return_error(files, PACKED[:-9]) == (ErrorCode.DATA_DAMAGED, again)


def test_what_is_too_large_is_refused(files: ProfileFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    fewer = "Profile fewer steps."
    monkeypatch.setattr(profiles, "_MAX_UNPACKED_NBYTES", len(CONTENT) - 1)
    assert add_and_return_error(files, PACKED) == (ErrorCode.LIMIT_EXCEEDED, fewer)
    monkeypatch.setattr(profiles, "_MAX_PACKED_NBYTES", len(PACKED) - 1)
    assert add_and_return_error(files, PACKED) == (ErrorCode.LIMIT_EXCEEDED, fewer)
    assert not list(Path(files._folder).glob("*"))
