"""Logs of builds: on disk, bounded, and without what a terminal would obey."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from edl_builder.adapters.build_log import BuildLog, BuildLogs, WrittenLines
from edl_builder.core.build import Phase
from edl_builder.core.identifiers import BuildId

BUILDING = Phase.BUILDING


def make(path: Path, nbytes: int = 1 << 20) -> BuildLog:
    return BuildLog(path / "log.jsonl", nbytes, lambda: "now", lambda text: text)


@contextlib.contextmanager
def files_of_at_most(nbytes: int) -> Iterator[None]:
    """Files cannot become larger, as on a full disk: a write is cut off, and the next one fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def texts(log: WrittenLines, after: int = 0) -> list[str]:
    found: list[str] = []
    while lines := log.after(after):
        found += [line.text for line in lines]
        after = lines[-1].number
    return found


def test_lines_have_numbers_and_stay(tmp_path: Path) -> None:
    log = make(tmp_path)
    log.add(BUILDING, "one\ntwo")
    log.add(BUILDING, "three")
    assert [(line.number, line.text) for line in log.after(1)] == [(2, "two"), (3, "three")]
    assert log.after(3) == log.after(99) == []
    log.close()
    log.add(BUILDING, "late")
    assert texts(log) == texts(make(tmp_path)) == ["one", "two", "three"]


@pytest.mark.parametrize("tail", [b'{"number": 2', b"\0\0\0\n", b'{"number": 7}\n', b"\xff\n"])
def test_what_was_cut_off_hides_nothing(tmp_path: Path, tail: bytes) -> None:
    make(tmp_path).add(BUILDING, "one")
    with (tmp_path / "log.jsonl").open("ab") as file:
        file.write(tail)
    log = make(tmp_path)
    log.add(BUILDING, "two")
    assert texts(log) == texts(make(tmp_path)) == ["one", "two"]


def test_a_full_disk_costs_lines_and_nothing_else(tmp_path: Path) -> None:
    log = make(tmp_path)
    log.add(BUILDING, "one")
    with files_of_at_most((tmp_path / "log.jsonl").stat().st_size + 10):
        log.add(BUILDING, "lost\nlost, too")
    log.add(BUILDING, "two")
    log.close()
    assert texts(log) == texts(make(tmp_path)) == ["one", "two"]


@pytest.mark.parametrize("text", ["x", "\u2028", "\x00" * 3000, "\U0001f600" * 3000])
def test_the_file_has_a_limit_whatever_is_written(tmp_path: Path, text: str) -> None:
    log = make(tmp_path, 20_000)
    for _ in range(2000):
        log.add(BUILDING, text)
    assert texts(log)[-1] == "the log is full; further lines are not kept"
    assert (tmp_path / "log.jsonl").stat().st_size <= 20_000 + 200
    for _ in range(10):
        make(tmp_path, 20_000).add(BUILDING, text)
    assert (tmp_path / "log.jsonl").stat().st_size <= 20_000 + 400


def test_a_long_log_is_read_in_pieces(tmp_path: Path) -> None:
    log = make(tmp_path, 8 << 20)
    for _ in range(40):
        log.add(BUILDING, "\n".join(["x" * 200] * 100))
    seen = []
    while lines := log.after(sum(seen)):
        seen.append(len(lines))
    assert sum(seen) == 4000
    assert max(seen) < 2000
    # What stays in memory is where the lines end.
    assert log._ends.itemsize * len(log._ends) == 8 * 4000


def test_nothing_that_a_terminal_would_obey_is_kept(tmp_path: Path) -> None:
    log = make(tmp_path)
    log.add(BUILDING, "a\x1b[2J\x1b]0;title\x07b\x1b[31mred\x9b31m\x08\x7f\u202e\tend")
    (text,) = texts(log)
    assert text == "abred?31m???\tend"


def test_one_open_file_for_each_build_that_has_not_ended(tmp_path: Path) -> None:
    def open_files() -> int:
        return sum(os.path.exists(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd"))

    logs = BuildLogs(
        lambda name: tmp_path / name / "log.jsonl", 1 << 20, lambda: "now", lambda text: text
    )
    before = open_files()
    names = [BuildId(f"b{number}") for number in range(5)]
    for name in names:
        (tmp_path / name).mkdir()
        for _ in range(100):
            logs.open(name).add(BUILDING, "line")
    assert open_files() <= before + 5
    for name in names:
        logs.close(name)
        assert logs.get(name) is None
        ended = logs.find(name)
        assert ended is not None
        assert len(ended) == 100
    assert open_files() <= before
    assert logs.find(BuildId("forgotten")) is None
