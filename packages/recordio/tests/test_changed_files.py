"""Files of this machine that change while they are read."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import pytest
from conftest import Kind

import recordio
from recordio.storage.pins import Pin

NUMBER = 5_000


@pytest.fixture
def records(kind: Kind) -> list[bytes]:
    return kind.rows(NUMBER)


@pytest.fixture
def path(kind: Kind, records: list[bytes], tmp_path: Path) -> str:
    place = str(tmp_path / kind.name)
    kind.write(place, records)
    return place


def rewrite(kind: Kind, path: str, records: list[bytes], *, later_ns: int = 1) -> None:
    """Write other records into the same file, as many and of the same lengths."""
    other = f"{path}.{kind.name}"
    kind.write(other, [*records[:-1], records[-1][:-1] + b"#"])
    before = os.stat(path)
    with open(other, "rb") as source, open(path, "r+b") as target:
        shutil.copyfileobj(source, target)
        target.truncate()
    touch(path, before, later_ns)


def touch(path: str, before: os.stat_result | None = None, later_ns: int = 1) -> None:
    before = before or os.stat(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + later_ns))


@pytest.mark.parametrize("later_ns", [1, 0], ids=["later", "as touch -r"])
def test_a_rewritten_file_is_refused_by_all_who_read_it(
    kind: Kind, path: str, records: list[bytes], later_ns: int
) -> None:
    source = recordio.open_source(path)
    hint = source.index().block(4_000)
    rewrite(kind, path, records, later_ns=later_ns)
    for reader in (source, recordio.open_source(path, version=source.version)):
        with pytest.raises(recordio.ChangedFile, match="has changed") as caught:
            list(reader.read(4_000, NUMBER, hint=hint))
        assert caught.value.uri == path


def test_no_block_is_given_of_a_file_that_changes_while_it_is_read(
    kind: Kind, path: str, records: list[bytes]
) -> None:
    source = recordio.open_source(path)
    source.index()
    blocks = source.read_blocks(0, NUMBER)
    found = next(blocks)
    rewrite(kind, path, records)
    with contextlib.suppress(recordio.ChangedFile):  # all of a small file has been read
        for block in blocks:
            found += block
    assert found == records[: len(found)]


def test_a_file_that_was_only_touched_or_copied_back_is_the_same(
    kind: Kind, path: str, records: list[bytes], tmp_path: Path
) -> None:
    source = recordio.open_source(path)
    source.index()
    blocks = source.read_blocks(0, NUMBER)
    found = next(blocks)
    touch(path)
    assert found + [record for block in blocks for record in block] == records
    shutil.copyfile(path, tmp_path / "copy")
    os.replace(tmp_path / "copy", path)
    other = recordio.open_source(path, version=source.version)
    hint = source.index().block(10)
    assert list(other.read(10, 20, hint=hint)) == records[10:20]


def test_a_file_is_compared_after_each_read_not_only_when_it_is_opened(
    kind: Kind, path: str, records: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = recordio.open_source(path)
    hint = source.index().block(0)
    hold = Pin.hold_local

    def hold_and_change(pin: Pin, uri: str, facts: os.stat_result) -> None:
        hold(pin, uri, facts)
        monkeypatch.setattr(Pin, "hold_local", hold)
        rewrite(kind, path, records)

    monkeypatch.setattr(Pin, "hold_local", hold_and_change)
    with pytest.raises(recordio.ChangedFile):
        list(source.read(0, NUMBER, hint=hint))


def test_a_file_whose_time_of_change_alone_differs_is_scanned_a_few_times_only(
    kind: Kind, path: str, records: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = recordio.open_source(path)
    hint = source.index().block(0)
    scans = []
    scan = type(source)._scan
    monkeypatch.setattr(type(source), "_scan", lambda self: scans.append(1) or scan(self))
    for mode in [0o600, 0o644] * 15:
        os.chmod(path, mode)
        assert list(source.read(0, 1, hint=hint)) == records[:1]
    assert 0 < len(scans) < 10
