"""A job's events."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from edl_master.adapters import event_log as module
from edl_master.adapters.event_log import EventLog, make_event
from edl_proto.errors import EdlError, ErrorCode


def add(event_log: EventLog, count: int, kind: str = "Something") -> None:
    for _ in range(count):
        event_log.add(make_event(kind, "info", "it happened", {"a": "1"}, 0.5))


def numbers(path: Path) -> list[int]:
    return [int(json.loads(line)["number"]) for line in path.read_text().splitlines()]


def test_events_are_numbered_without_gaps_over_all_masters(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    for _ in range(3):
        event_log = EventLog(path)
        add(event_log, 4)
        event_log.close()
    assert numbers(path) == list(range(1, 13))
    written = json.loads(path.read_text().splitlines()[0])
    assert (written["kind"], written["severity"]) == ("Something", "info")
    assert written["facts"] == {"a": "1"}
    assert written["at"].endswith("Z")


def test_a_line_that_was_torn_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    event_log = EventLog(path)
    add(event_log, 2)
    event_log.close()
    whole = path.read_bytes()
    path.write_bytes(whole + whole.splitlines()[0][:20])
    event_log = EventLog(path)
    add(event_log, 1)
    event_log.close()
    assert numbers(path) == [1, 2, 3]


def test_no_thread_that_adds_waits_for_the_disk(tmp_path: Path) -> None:
    event_log = EventLog(tmp_path / "events.jsonl")
    add(event_log, 3)
    assert (tmp_path / "events.jsonl").read_bytes() == b""
    assert [each.number for each in event_log.after(1)] == [2, 3]
    event_log.flush()
    assert numbers(tmp_path / "events.jsonl") == [1, 2, 3]
    event_log.flush()
    assert numbers(tmp_path / "events.jsonl") == [1, 2, 3]


def test_what_is_no_longer_remembered_is_read_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_REMEMBERED", 5)
    event_log = EventLog(tmp_path / "events.jsonl")
    add(event_log, 20)
    assert [each.number for each in event_log.after(0)] == list(range(1, 21))
    assert [each.number for each in event_log.after(3, limit=4)] == [4, 5, 6, 7]
    assert [each.number for each in event_log.after(17)] == [18, 19, 20]
    assert event_log.after(20) == []
    assert event_log.after(99) == []


def test_events_of_an_earlier_master_are_handed_out_too(tmp_path: Path) -> None:
    first = EventLog(tmp_path / "events.jsonl")
    add(first, 3)
    first.close()
    second = EventLog(tmp_path / "events.jsonl")
    assert [each.number for each in second.after(1)] == [2, 3]
    add(second, 1)
    assert [each.number for each in second.after(1)] == [2, 3, 4]


def test_watchers_wait_for_the_next_event_or_the_end(tmp_path: Path) -> None:
    event_log = EventLog(tmp_path / "events.jsonl")
    assert not event_log.wait(0, 0.01)
    timer = threading.Timer(0.05, add, (event_log, 1))
    timer.start()
    assert event_log.wait(0, 60)
    timer.join()
    timer = threading.Timer(0.05, event_log.close)
    timer.start()
    assert not event_log.wait(1, 60)
    timer.join()
    assert event_log.closed


def test_a_disk_that_is_full_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    event_log = EventLog(path)
    add(event_log, 1)
    with open("/dev/full", "wb", buffering=0) as full:
        real, event_log._file = event_log._file, full
        with pytest.raises(EdlError) as caught:
            event_log.flush()
    assert caught.value.code in (ErrorCode.DISK_FULL, ErrorCode.OUTPUT_UNWRITABLE)
    event_log._file = real
    add(event_log, 1)
    event_log.close()
    assert numbers(path) == [1, 2]
