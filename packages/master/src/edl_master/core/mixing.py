"""The tasks of a shuffled epoch: each of them is a sample of all the data.

If the data is sorted by class, a task of consecutive records would contain only one class. So the
records of all files, one after the other, are divided into as many *strata* as a task has blocks,
and a task has one block of each stratum. A seeded permutation assigns the blocks to tasks. It is
computed when a task is leased, so there is no list of tasks or blocks.

The blocks of successive tasks are neighbours, although the order of tasks is random: what a worker
reads for one task serves the next tasks, too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from edl_master.core.effects import Range
from edl_master.core.permutation import Permutation, derive_seed


@dataclass(frozen=True, slots=True)
class Mixing:
    """How finely the tasks of an epoch are mixed.

    Attributes:
        blocks: of each task, from all over the data.
        neighbours: blocks in a row that tasks in a row have.
    """

    blocks: int
    neighbours: int = 1

    def __post_init__(self) -> None:
        if self.blocks < 1 or self.neighbours < 1:
            raise ValueError(f"tasks cannot be mixed by {self}")


class MixedPartition:
    """The records of an epoch, divided into tasks that are samples of all of them.

    Every task has ``records_per_task`` records, but the last one, which has the rest.

    Args:
        files: records of each file, in order.
        records_per_task: the length of a task.
        mixing: how finely tasks are mixed; at most a block for each record is made.
        seed: of the epoch.
        names: of the files, for messages; may be left out.
    """

    __slots__ = ("_ends", "_full", "_names", "_seed", "_strata", "count", "records")
    is_final = True

    def __init__(
        self,
        files: tuple[int, ...],
        records_per_task: int,
        mixing: Mixing,
        seed: int,
        names: Sequence[str] = (),
    ) -> None:
        self._names = names
        self._seed = seed
        self._ends = list(accumulate(files))
        self.records = sum(files)
        self.count = -(-self.records // records_per_task)
        self._full = max(0, self.count - 1)
        """Tasks of the whole length; the last one is shorter, or as long."""
        rest = self.records - self._full * records_per_task
        blocks = min(mixing.blocks, records_per_task)
        begin, strata = 0, []
        for number in range(blocks if self.count else 0):
            stratum = _Stratum(
                begin,
                _share(records_per_task, blocks, number),
                _share(rest, blocks, number),
                self._full,
                mixing.neighbours,
                derive_seed(seed, number),
            )
            strata.append(stratum)
            begin = stratum.end
        self._strata = strata

    def ranges(self, number: int) -> tuple[Range, ...]:
        """Return the records of a task, in a random order of its blocks."""
        blocks: list[list[int]] = []
        for stratum in self._strata:
            start, stop = stratum.block(number)
            if blocks and blocks[-1][1] == start:
                blocks[-1][1] = stop
            elif start < stop:
                blocks.append([start, stop])
        order = Permutation(len(blocks), derive_seed(self._seed, len(self._strata), number))
        return tuple(
            part for at in range(len(blocks)) for part in self._in_files(*blocks[order.at(at)])
        )

    def _in_files(self, start: int, stop: int) -> Iterator[Range]:
        file = bisect_right(self._ends, start)
        while start < stop:
            first = self._ends[file - 1] if file else 0
            end = min(stop, self._ends[file])
            if start < end:
                yield Range(file, start - first, end - first)
            start = max(start, end)
            file += 1

    def place(self, number: int) -> str:
        """Say in words which records a task has."""
        return name_ranges(self.ranges(number), self._names)


class _Stratum:
    """One block for each task, in a row of records that begins somewhere in the data.

    Args:
        begin: its first record.
        length: of each block of a full task.
        rest: length of the block of the last task, which is somewhere between the others.
        full: number of the full tasks.
        neighbours: blocks that belong to tasks in a row.
        seed: of this stratum.
    """

    __slots__ = ("_begin", "_cells", "_full", "_gap", "_length", "_neighbours", "_rest", "_within")

    def __init__(
        self, begin: int, length: int, rest: int, full: int, neighbours: int, seed: int
    ) -> None:
        self._begin, self._length, self._rest, self._full = begin, length, rest, full
        self._neighbours = max(1, min(neighbours, full))
        self._cells = Permutation(full // self._neighbours, derive_seed(seed, 0))
        self._within = Permutation(self._neighbours, derive_seed(seed, 1))
        self._gap = derive_seed(seed, 2) % (full + 1)

    @property
    def end(self) -> int:
        """The record after the last one."""
        return self._begin + self._full * self._length + self._rest

    def block(self, number: int) -> tuple[int, int]:
        """Return first record of a task's block, and the one after its last."""
        if number == self._full:
            start = self._begin + self._gap * self._length
            return start, start + self._rest
        cell, within = divmod(number, self._neighbours)
        if cell < self._cells.size:
            number = self._cells.at(cell) * self._neighbours + self._within.at(within)
        start = self._begin + number * self._length + (self._rest if number >= self._gap else 0)
        return start, start + self._length


def _share(total: int, parts: int, number: int) -> int:
    """Return the size of one of the parts that a total is divided into as evenly as possible."""
    return total // parts + (number < total % parts)


_NAMED_RANGES = 3
"""A task of mixed records has many."""


def name_ranges(ranges: Sequence[Range], names: Sequence[str]) -> str:
    """Say in words which records some ranges have: the first of them, in the order of the data."""
    texts: dict[int, list[str]] = {}
    in_order = sorted(ranges, key=lambda one: (one.file, one.start))
    more = len(in_order) - _NAMED_RANGES
    for one in in_order[:_NAMED_RANGES] if more > 1 else in_order:
        last = one.stop - 1
        texts.setdefault(one.file, []).append(
            f"{one.start} to {last}" if last > one.start else f"{last}"
        )
    named = "; ".join(
        f"records {', '.join(parts)} of {names[file] if file < len(names) else f'file {file}'}"
        for file, parts in texts.items()
    )
    return f"{named}, and {more} more ranges" if more > 1 else named


BLOCKS_PER_TASK = 16
"""At least: each task then has records of 16 places that are spread evenly over the data."""

MAX_BLOCKS_PER_TASK = 128
"""So many places a lease names at most, and a worker reads."""

BLOCK_RECORDS = 4
"""At least: what is read for a block may be a thousand records."""

BLOCK_BYTES = 512 << 10
"""Where a task has enough of them: a block costs a chunk more than it has, 1 MiB by default."""

STORED_BLOCKS_PER_TASK = 8
"""The same numbers for object stores, where each block costs a request."""

STORED_BLOCK_BYTES = 4 << 20

HELD_UNIT_BYTES = 256 << 20
"""Of the units that the blocks of a task are in: a worker holds them while their neighbours are
read. Few units are large, but a row group of Parquet may be, and is decoded as a whole."""


def choose_mixing(
    records_per_task: int, record_bytes: float, unit_records: float, *, in_store: bool
) -> Mixing:
    """Choose how finely the tasks of an epoch are mixed.

    Args:
        records_per_task: the length of a task.
        record_bytes: stored bytes of a record, on average.
        unit_records: records of the smallest unit of reading, on average.
        in_store: reading costs requests.
    """
    least = STORED_BLOCKS_PER_TASK if in_store else BLOCKS_PER_TASK
    block_bytes = STORED_BLOCK_BYTES if in_store else BLOCK_BYTES
    wanted = int(records_per_task * record_bytes / block_bytes)
    held = int(HELD_UNIT_BYTES / max(1.0, record_bytes * unit_records))
    blocks = min(max(wanted, least), MAX_BLOCKS_PER_TASK, records_per_task // BLOCK_RECORDS, held)
    blocks = max(1, blocks)
    return Mixing(blocks, max(1, round(unit_records * blocks / records_per_task)))
