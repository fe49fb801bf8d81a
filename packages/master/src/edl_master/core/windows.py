"""The windows of a stream: the rounds of a training job whose data keeps arriving.

A source discovers *splits*: files that are complete, or ranges of a partition of a broker. They are
numbered in the order of their discovery, once and for all, so a position in the stream is a split
and a record in it. Windows are consecutive, and each of them is divided into tasks as epochs are:
no task has records of two splits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from edl_master.core.effects import Range


@dataclass(frozen=True, slots=True)
class WindowRule:
    """When a window ends: with a number of records, or a time after its first split came.

    Attributes:
        records: of a window; 0: any number.
        seconds: from the discovery of its first split; 0: no limit.

    Raises:
        ValueError: there is not exactly one limit.
    """

    records: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if (self.records > 0) == (self.seconds > 0) or min(self.records, self.seconds) < 0:
            raise ValueError(f"a window ends after records or after seconds, not {self}")


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a stream that does not change any more.

    Attributes:
        number: in the order of discovery, from 0.
        name: for messages.
        records: how many it has.
    """

    number: int
    name: str
    records: int


@dataclass(frozen=True, slots=True)
class SplitsDiscovered:
    """The source of a stream has discovered splits, which it will never change."""

    splits: tuple[Split, ...]


class Window:
    """Consecutive records of a stream, divided into tasks; grows until it is final.

    Args:
        split: the first split that it has records of.
        skipped: records of that split that belong to earlier windows.
        records_per_task: the length of every task but the last of a split.
        names: of splits, for messages.

    Attributes:
        split: as above.
        count: number of tasks so far.
        records: of all tasks.
        is_final: whether it has got all its records.
    """

    def __init__(
        self, split: int, skipped: int, records_per_task: int, names: Mapping[int, str]
    ) -> None:
        self.split = split
        self._skipped = skipped
        self._records_per_task = records_per_task
        self._names = names
        self._records: list[int] = []
        self._ends: list[int] = []
        self.count = self.records = 0
        self.is_final = False

    @property
    def stop(self) -> int:
        """The split after the last one that it has records of."""
        return self.split + len(self._records)

    def extend(self, records: int) -> None:
        """Add the next records of the stream: all of one split, or its first ones."""
        self._records.append(records)
        self.records += records
        self.count += -(-records // self._records_per_task)
        self._ends.append(self.count)

    def ranges(self, number: int) -> tuple[Range, ...]:
        """Return the records of a task: one range."""
        place = bisect_right(self._ends, number)
        task = number - (self._ends[place - 1] if place else 0)
        begin = 0 if place else self._skipped
        start = begin + task * self._records_per_task
        stop = min(start + self._records_per_task, begin + self._records[place])
        return (Range(self.split + place, start, stop),)

    def place(self, number: int) -> str:
        """Say in words which records a task has."""
        (part,) = self.ranges(number)
        name = self._names.get(part.file, f"split {part.file}")
        return f"records {part.start} to {part.stop - 1} of {name}"

    def snapshot(self) -> dict[str, Any]:
        """Return JSON-able values, as small as the list of its splits."""
        return {
            "split": self.split,
            "skipped": self._skipped,
            "records": self._records.copy(),
            "is_final": self.is_final,
        }


class SplitStream:
    """The splits that were discovered, divided into windows.

    Only windows with tasks that are not done are kept: see ``forget``.

    Args:
        rule: when a window ends.
        records_per_task: the length of tasks.

    Attributes:
        begun: windows that have begun; the last one may get more records.
        records: of all splits.
        next_split: the number that the next split has.
        has_ended: whether no more splits are added.
    """

    def __init__(self, rule: WindowRule, records_per_task: int) -> None:
        self._rule = rule
        self._records_per_task = records_per_task
        self._windows: dict[int, Window] = {}
        self._names: dict[int, str] = {}
        self._ends_at: float | None = None
        self.begun = 0
        self.records = 0
        self.next_split = 0
        self.has_ended = False

    def window(self, number: int) -> Window:
        """Return a window that has begun and is not forgotten, by its number from 0."""
        return self._windows[number]

    @property
    def oldest_split(self) -> int:
        """The first split that a kept window has records of: no earlier one is read again."""
        return min((window.split for window in self._windows.values()), default=self.next_split)

    def extend(self, splits: Iterable[Split], now: float) -> None:
        """Add splits; those that a restored stream has already only get their names.

        Raises:
            ValueError: one is missing before them.
        """
        for split in splits:
            if split.number > self.next_split:
                raise ValueError(f"split {self.next_split} is missing before {split.number}")
            if split.number >= self.oldest_split:
                self._names[split.number] = split.name
            if split.number == self.next_split and not self.has_ended:
                self._divide(split, now)
                self.next_split += 1
                self.records += split.records

    def _divide(self, split: Split, now: float) -> None:
        """Give the records of a split to the last window and, if they do not fit, to new ones."""
        window, taken = self._growing, 0
        if window is not None and not split.records:
            window.extend(0)  # the splits of a window are numbered without gaps
        while taken < split.records:
            if window is None:
                window = self._begin(split.number, taken, now)
            records = split.records - taken
            if self._rule.records:
                records = min(records, self._rule.records - window.records)
            window.extend(records)
            taken += records
            window.is_final = window.records == self._rule.records
            window = self._growing

    @property
    def _growing(self) -> Window | None:
        """The last window, if it may get more records."""
        last = self._windows.get(self.begun - 1)
        return None if last is None or last.is_final else last

    def _begin(self, split: int, skipped: int, now: float) -> Window:
        window = Window(split, skipped, self._records_per_task, self._names)
        self._windows[self.begun] = window
        self.begun += 1
        self._ends_at = now + self._rule.seconds
        return window

    def pass_time(self, now: float) -> None:
        """End the last window if its time is over."""
        if (window := self._growing) is None or not self._rule.seconds:
            return
        if self._ends_at is None:  # restored: a window begins to wait again
            self._ends_at = now + self._rule.seconds
        window.is_final = now >= self._ends_at

    def end(self) -> None:
        """End the stream with the records that it has; later splits are not added."""
        self.has_ended = True
        if (window := self._growing) is not None:
            window.is_final = True

    def forget(self, before: int) -> None:
        """Forget the windows with a smaller number: all their tasks are done."""
        for number in [number for number in self._windows if number < before]:
            window = self._windows.pop(number)
            for split in range(window.split, min(window.stop, self.oldest_split)):
                self._names.pop(split, None)

    def snapshot(self) -> dict[str, Any]:
        """Return the position as JSON-able values."""
        return {
            "begun": self.begun,
            "records": self.records,
            "next_split": self.next_split,
            "has_ended": self.has_ended,
            "windows": [[number, window.snapshot()] for number, window in self._windows.items()],
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take over what ``snapshot`` saved."""
        self.begun, self.records = saved["begun"], saved["records"]
        self.next_split, self.has_ended = saved["next_split"], saved["has_ended"]
        for number, entry in saved["windows"]:
            window = Window(entry["split"], entry["skipped"], self._records_per_task, self._names)
            for records in entry["records"]:
                window.extend(records)
            window.is_final = entry["is_final"]
            self._windows[number] = window
