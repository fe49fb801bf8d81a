"""Windows have every record of a stream exactly once, in the order of its splits."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl_master.core.windows import Split, SplitStream, Window, WindowRule

splits = st.lists(st.integers(0, 30), max_size=12)
Place = tuple[int, int]


def number_splits(records: list[int], first: int = 0) -> list[Split]:
    return [Split(first + at, f"file-{first + at}", count) for at, count in enumerate(records)]


def places(window: Window) -> list[Place]:
    ranges = [part for task in range(window.count) for part in window.ranges(task)]
    return [(part.file, record) for part in ranges for record in range(part.start, part.stop)]


def all_places(stream: SplitStream) -> list[Place]:
    return [place for number in range(stream.begun) for place in places(stream.window(number))]


@given(records=splits, per_window=st.integers(1, 40), per_task=st.integers(1, 12))
def test_windows_of_a_number_of_records_have_each_record_once(
    records: list[int], per_window: int, per_task: int
) -> None:
    stream = SplitStream(WindowRule(records=per_window), per_task)
    stream.extend(number_splits(records), 0)
    assert all_places(stream) == [(at, r) for at, count in enumerate(records) for r in range(count)]
    windows = [stream.window(number) for number in range(stream.begun)]
    assert all(w.is_final == (w.records == per_window) for w in windows)
    assert all(w.is_final for w in windows[:-1])
    assert all(
        0 < part.stop - part.start <= per_task
        for w in windows
        for task in range(w.count)
        for part in w.ranges(task)
    )


@given(
    records=splits,
    cuts=st.lists(st.integers(0, 12), max_size=4),
    rule=st.one_of(
        st.integers(1, 40).map(lambda n: WindowRule(records=n)), st.just(WindowRule(seconds=60))
    ),
)
def test_when_splits_are_discovered_changes_no_task(
    records: list[int], cuts: list[int], rule: WindowRule
) -> None:
    """They come one by one, or again, or to a stream that was restored in between."""
    at_once = SplitStream(rule, 7)
    at_once.extend(number_splits(records), 0)
    stream = SplitStream(rule, 7)
    for cut in sorted(cuts):
        stream.extend(number_splits(records[:cut]), 0)
        restored = SplitStream(rule, 7)
        restored.restore(json.loads(json.dumps(stream.snapshot())))
        assert restored.snapshot() == stream.snapshot()
        stream = restored
    stream.extend(number_splits(records), 0)
    assert all_places(stream) == all_places(at_once)
    assert stream.snapshot() == at_once.snapshot()


def test_a_window_of_seconds_ends_that_long_after_its_first_split() -> None:
    stream = SplitStream(WindowRule(seconds=60), 10)
    stream.pass_time(1000)
    assert stream.begun == 0, "a window without records does not begin"
    stream.extend(number_splits([5]), 1000)
    stream.extend(number_splits([5], 1), 1059)
    stream.pass_time(1059.9)
    assert not stream.window(0).is_final
    stream.pass_time(1060)
    assert stream.window(0).is_final
    stream.extend(number_splits([4], 2), 1061)
    assert stream.begun == 2
    assert places(stream.window(1)) == [(2, record) for record in range(4)]


def test_a_restored_window_waits_again() -> None:
    stream = SplitStream(WindowRule(seconds=60), 10)
    stream.extend(number_splits([5]), 1000)
    restored = SplitStream(WindowRule(seconds=60), 10)
    restored.restore(stream.snapshot())
    restored.pass_time(5)  # another clock
    restored.pass_time(64)
    assert not restored.window(0).is_final
    restored.pass_time(65)
    assert restored.window(0).is_final


def test_a_missing_split_is_an_error() -> None:
    stream = SplitStream(WindowRule(records=10), 10)
    stream.extend(number_splits([5]), 0)
    with pytest.raises(ValueError, match="split 1 is missing before 2"):
        stream.extend(number_splits([5], 2), 0)


def test_forgotten_windows_leave_nothing() -> None:
    stream = SplitStream(WindowRule(records=10), 10)
    stream.extend(number_splits([5] * 1000), 0)
    assert stream.window(499).place(1) == "records 0 to 4 of file-999"
    stream.forget(499)
    assert stream.oldest_split == 998
    assert len(json.dumps(stream.snapshot())) < 200
    stream.forget(500)
    assert stream.oldest_split == stream.next_split == 1000
    stream.extend(number_splits([3], 1000), 0)
    assert stream.window(500).place(0) == "records 0 to 2 of file-1000"


def test_a_stream_that_has_ended_takes_no_more_splits() -> None:
    stream = SplitStream(WindowRule(records=10), 10)
    stream.extend(number_splits([5]), 0)
    stream.end()
    stream.extend(number_splits([5, 5]), 0)
    assert stream.window(0).is_final
    assert (stream.begun, stream.records, stream.next_split) == (1, 5, 1)


@pytest.mark.parametrize("rule", [(0, 0.0), (5, 1.0), (-1, 0.0), (0, -1.0), (-1, 1.0)])
def test_a_window_has_one_limit(rule: tuple[int, float]) -> None:
    with pytest.raises(ValueError, match="a window ends after records or after seconds"):
        WindowRule(*rule)
