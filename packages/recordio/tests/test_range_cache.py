"""Ranges that were fetched once come from this machine, true and within their limit."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from recordio.storage.range_cache import RangeCache
from recordio.storage.stores import StoredObject

CONTENT = os.urandom(100_000)


class Store:
    """One object.

    Attributes:
        asked: the ranges that were wanted of it.
    """

    def __init__(self, version: str = "1", content: bytes = CONTENT) -> None:
        self.asked: list[tuple[int, int]] = []
        self._content = content
        self.object = StoredObject("s3://bucket/x", len(content), version, self._fetch)

    def _fetch(self, start: int, stop: int) -> bytes:
        self.asked.append((start, stop))
        return self._content[start:stop]


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_range_is_fetched_once_for_all_processes(tmp_path: Path) -> None:
    folder = tmp_path / "of" / "mine"
    store = Store()
    for _ in range(2):
        cache = RangeCache(str(folder), 1 << 20)
        for start, stop in ((0, 10), (10, 5_000), (0, 11)):
            assert cache.fetch(store.object, start, stop) == CONTENT[start:stop]
    assert store.asked == [(0, 10), (10, 5_000), (0, 11)]
    assert folder.stat().st_mode & 0o777 == 0o700


def test_another_version_is_another_object(tmp_path: Path) -> None:
    cache = RangeCache(str(tmp_path), 1 << 20)
    assert cache.fetch(Store().object, 0, 100) == CONTENT[:100]
    changed = Store("2", CONTENT[::-1])
    assert cache.fetch(changed.object, 0, 100) == CONTENT[::-1][:100]
    unknown = Store("")
    for _ in range(2):
        assert cache.fetch(unknown.object, 0, 100) == CONTENT[:100]
    assert unknown.asked == 2 * [(0, 100)]


@pytest.mark.parametrize("damage", ["cut", "flip", "zeros", "empty"])
def test_a_damaged_file_is_fetched_again(tmp_path: Path, damage: str) -> None:
    cache, store = RangeCache(str(tmp_path), 1 << 20), Store()
    cache.fetch(store.object, 0, 1_000)
    (file,) = files(tmp_path)
    content = file.read_bytes()
    file.write_bytes(
        {
            "cut": content[:-1],
            "flip": bytes([content[0] ^ 1]) + content[1:],
            "zeros": bytes(len(content)),
            "empty": b"",
        }[damage]
    )
    for _ in range(2):
        assert cache.fetch(store.object, 0, 1_000) == CONTENT[:1_000]
    assert len(store.asked) == 2


@pytest.mark.timeout(120)  # a pipe that is opened would wait for its writer
@pytest.mark.parametrize("trick", ["owner", "rights", "link", "pipe", "folder's rights", "folder"])
def test_what_another_user_may_have_placed_there_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trick: str
) -> None:
    cache, store = RangeCache(str(tmp_path), 1 << 20), Store()
    cache.fetch(store.object, 0, 1_000)
    (file,) = files(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    match trick:
        case "owner":
            other = os.geteuid() + 1
            monkeypatch.setattr(os, "geteuid", lambda: other)
        case "rights":
            file.chmod(0o666)
        case "link":
            file.rename(elsewhere)
            file.symlink_to(elsewhere)
        case "pipe":
            file.unlink()
            os.mkfifo(file)
        case "folder's rights":
            file.parent.chmod(0o777)
        case "folder":
            file.parent.rename(elsewhere)
            file.parent.symlink_to(elsewhere)
    before = sorted(tmp_path.rglob("*"))
    assert cache.fetch(store.object, 0, 1_000) == CONTENT[:1_000]
    assert len(store.asked) == 2
    assert sorted(tmp_path.rglob("*")) == before, "nothing is written to a folder of others"


def test_other_users_cannot_read_what_is_kept_in_a_folder_that_they_can(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    RangeCache(str(tmp_path), 1 << 20).fetch(Store().object, 0, 1_000)
    (file,) = files(tmp_path)
    assert file.parent.stat().st_mode & 0o077 == 0


def test_an_answer_that_is_cut_short_is_not_kept(tmp_path: Path) -> None:
    cache, store = RangeCache(str(tmp_path), 1 << 20), Store(content=CONTENT[:50])
    assert cache.fetch(store.object, 0, 100) == CONTENT[:50]
    assert not files(tmp_path)


def test_the_folder_stays_within_its_limit_and_is_of_use(tmp_path: Path) -> None:
    limit, size = 50_000, 1_000
    store = Store()
    caches = [RangeCache(str(tmp_path), limit) for _ in range(3)]
    for _ in range(5):
        for number, start in enumerate(range(0, len(CONTENT), size)):
            found = caches[number % 3].fetch(store.object, start, start + size)
            assert found == CONTENT[start : start + size]
            held = sum(file.stat().st_size for file in files(tmp_path))
            assert held <= limit + 3 * (limit // 64 + size + 4)
    wanted = 5 * len(CONTENT) // size
    assert wanted // 5 < len(store.asked) < 0.92 * wanted, "half of the data fits"


def test_what_is_larger_than_the_limit_is_not_kept(tmp_path: Path) -> None:
    cache, store = RangeCache(str(tmp_path / "none"), 900), Store()
    assert cache.fetch(store.object, 0, 1_000) == CONTENT[:1_000]
    assert not (tmp_path / "none").exists()


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "ab").mkdir()
    old, new = f"{1:032x}.tmp", f"{2:032x}.tmp"
    for name, age_s in ((old, 10_000), (new, 10)):
        (tmp_path / "ab" / name).write_bytes(b"half")
        at = os.stat(tmp_path).st_mtime - age_s
        os.utime(tmp_path / "ab" / name, (at, at))
    RangeCache(str(tmp_path), 64_000).fetch(Store().object, 0, 1_000)
    left = {file.name for file in files(tmp_path) if file.suffix}
    assert left == {new}


def test_other_files_in_the_folder_are_never_removed(tmp_path: Path) -> None:
    """The user may name a folder that contains other files."""
    others = ["letter.txt", "photos/1.jpg", "ab/notes.tmp", "ab/cd", "abc/" + "0" * 38]
    for name in others:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(bytes(5_000))
        os.utime(tmp_path / name, (0, 0))
    cache, store = RangeCache(str(tmp_path), 4_000), Store()
    for start in range(0, len(CONTENT), 1_000):
        cache.fetch(store.object, start, start + 1_000)
    assert all((tmp_path / name).stat().st_size == 5_000 for name in others)
    held = sum(file.stat().st_size for file in files(tmp_path)) - 5_000 * len(others)
    assert 0 < held <= 4_000 + 1_004


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_costs_speed_only(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    store = Store()
    cache = RangeCache(str(tmp_path / "x"), 1 << 20)
    assert cache.fetch(store.object, 0, 10) == CONTENT[:10]


def test_a_folder_that_is_a_file_costs_speed_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = Store()
    cache = RangeCache(str(tmp_path / "file"), 1 << 20)
    for _ in range(2):
        assert cache.fetch(store.object, 0, 10) == CONTENT[:10]
    assert len(store.asked) == 2


def test_many_readers_at_once_read_what_is_true(tmp_path: Path) -> None:
    """Some of them find files that others remove at that moment."""
    caches = [RangeCache(str(tmp_path), 20_000) for _ in range(4)]
    store, begin = Store(), threading.Barrier(4)

    def read(cache: RangeCache) -> bool:
        begin.wait(100)
        return all(
            cache.fetch(store.object, start, start + 500) == CONTENT[start : start + 500]
            for _ in range(3)
            for start in range(0, len(CONTENT), 500)
        )

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(read, caches))
