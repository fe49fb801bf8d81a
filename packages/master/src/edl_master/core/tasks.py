"""Tasks: the division of data into them, and the new, open and done ones of a round.

There is no list of all tasks. A partition computes a task's records from its number; a round is a
cursor over an order, and the few tasks that are neither new nor done.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Protocol

from edl_master.core.effects import Range
from edl_master.core.identifiers import AppliedCount, TaskKey, TaskType, WorkerId
from edl_master.core.mixing import name_ranges
from edl_master.core.permutation import Permutation


class Partition(Protocol):
    """The division of data into tasks.

    Attributes:
        count: number of tasks.
        records: of all tasks.
        is_final: whether it gets no more tasks.
    """

    count: int
    records: int
    is_final: bool

    def ranges(self, number: int) -> tuple[Range, ...]:
        """Return the records of a task."""

    def place(self, number: int) -> str:
        """Say in words which records a task has."""


class TaskPartition:
    """Files cut into ranges of at most ``records_per_task`` records, none across two files.

    Memory is a number per file, whatever the number of records.

    Args:
        files: records of each file, in order; empty files have no task.
        records_per_task: the length of every task but the last of a file.
        names: of the files, for messages; may be left out.
    """

    __slots__ = ("_ends", "_files", "_names", "_records_per_task", "count", "records")
    is_final = True

    def __init__(
        self, files: tuple[int, ...], records_per_task: int, names: Sequence[str] = ()
    ) -> None:
        self._files = files
        self._names = names
        self._records_per_task = records_per_task
        self._ends = list(accumulate(-(-records // records_per_task) for records in files))
        self.count = self._ends[-1] if files else 0
        self.records = sum(files)

    def range(self, number: int) -> Range:
        """Return the records of task ``number``, counted in the order of the data."""
        file = bisect_right(self._ends, number)
        first = self._ends[file - 1] if file else 0
        start = (number - first) * self._records_per_task
        return Range(file, start, min(start + self._records_per_task, self._files[file]))

    def ranges(self, number: int) -> tuple[Range, ...]:
        return (self.range(number),)

    def place(self, number: int) -> str:
        return name_ranges(self.ranges(number), self._names)


@dataclass(slots=True)
class OpenTask:
    """A task that has been leased at least once and is not done."""

    key: TaskKey
    records: tuple[Range, ...]
    leases: int = 0
    """How often it has been leased."""
    failures: int = 0
    """How often the task itself failed, not its worker."""
    deaths: int = 0
    """Instances that crashed under it since it last made progress."""
    crashes: int = 0
    """Instances that ended on their own account while they worked on it."""
    minibatches: int = 0
    """How many have been reported as applied; the plane has the exact count."""
    records_applied: int = 0
    """At most ``length``, also where the input function multiplies records."""
    examples_applied: int = 0
    """What the input function has made of the records in the applied minibatches."""
    returned: int = 0
    """Order of return: lower is older."""
    not_for: WorkerId | None = None
    """The worker that it failed on, until ``not_for_until``."""
    not_for_until: float = 0.0
    redo: bool = False
    """Some of it will be computed a second time."""

    @property
    def length(self) -> int:
        """Records in the task; 0 for a task without records."""
        return sum(part.stop - part.start for part in self.records)

    def take_over(self, count: AppliedCount) -> int:
        """Take over a count of the plane; return how many minibatches were not reported."""
        unreported = count.minibatches - self.minibatches
        if unreported <= 0:
            return 0
        self.minibatches = count.minibatches
        self.records_applied = min(count.records, self.length)
        self.examples_applied = count.records
        return unreported


@dataclass(slots=True)
class Round:
    """All tasks of one type and round: the position in an order, and the set of open tasks.

    ``partition`` is None for a round of one task without records; ``order`` None means the order
    of the data.
    """

    type: TaskType
    number: int
    partition: Partition | None
    order: Permutation | None = None
    cursor: int = 0
    """Positions of the order taken so far."""
    done: int = 0
    dead: int = 0
    retried: int = 0
    records_done: int = 0
    """Of done tasks, and those of dead ones that are in the model."""
    examples_of: int = 0
    """Records of done tasks."""
    examples: int = 0
    """What the input function has made of these records."""
    open: dict[int, OpenTask] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Tasks in the round, so far if more may follow."""
        return self.partition.count if self.partition else 1

    @property
    def has_new(self) -> bool:
        """Whether some task has never been leased."""
        return self.cursor < self.count

    @property
    def complete(self) -> bool:
        """Whether every task is done or dead, and no more tasks follow."""
        is_final = self.partition is None or self.partition.is_final
        return is_final and not self.has_new and not self.open

    def is_settled(self, number: int) -> bool:
        """Return whether a task is done or dead; for rounds in the order of the data."""
        assert self.order is None, "where a task is in a shuffled order is not known here"
        return number < self.cursor and number not in self.open

    def take_new(self) -> OpenTask:
        """Open the next task of the order."""
        number = self.order.at(self.cursor) if self.order else self.cursor
        self.cursor += 1
        return self.reopen(number)

    def find_new(self, numbers: Set[int], others: int) -> int | None:
        """Return up to which position of the order new tasks are to be taken to have all of these.

        None: some of the tasks are not new, or more than so many ``others`` are in front of them.
        """
        missing, position = set(numbers), self.cursor
        end = min(self.count, position + len(numbers) + others)
        while missing and position < end:
            missing.discard(self.order.at(position) if self.order else position)
            position += 1
        return None if missing else position

    def reopen(self, number: int) -> OpenTask:
        """Open the task with this number."""
        key = TaskKey(self.type, self.number, number)
        task = OpenTask(key, self.partition.ranges(number) if self.partition else ())
        self.open[number] = task
        return task

    def place(self, task: OpenTask) -> str:
        """Say in words what a task is."""
        what = self.type.value.replace("_", " ")
        return (
            f"{what} of {self.partition.place(task.key.number)}"
            if self.partition
            else f"the {what}"
        )

    def close(self, task: OpenTask, *, dead: bool, examples: int = 0) -> None:
        """Forget an open task that is dead, or done with a number of examples."""
        del self.open[task.key.number]
        if dead:
            self.dead += 1
            self.records_done += task.records_applied
        else:
            self.done += 1
            self.records_done += task.length
            self.examples_of += task.length
            self.examples += examples

    def snapshot(self) -> dict[str, Any]:
        """Return the position as JSON-able values; as small as the set of open tasks."""
        return {
            "type": self.type.value,
            "number": self.number,
            **{name: getattr(self, name) for name in _COUNTS},
            "open": [
                {"number": number, **{name: getattr(task, name) for name in _KEPT}}
                for number, task in self.open.items()
            ],
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take over a position that ``snapshot`` saved for the same round."""
        for name in _COUNTS:
            setattr(self, name, saved[name])
        for entry in saved["open"]:
            task = self.reopen(entry["number"])
            for name in _KEPT:
                setattr(task, name, entry.get(name, 0))  # an earlier version had fewer


_COUNTS = ("cursor", "done", "dead", "retried", "records_done", "examples_of", "examples")

_KEPT = (
    *("leases", "failures", "deaths", "minibatches", "records_applied", "examples_applied"),
    *("returned", "redo"),
)
"""What a snapshot keeps of an open task: not its excluded workers, since workers change."""
