"""Reads the records of tasks: ranges of files, which a shuffled task mixes.

A shuffled task has a few records of each of many blocks, and tasks in a row have neighbours. So
blocks that were read are kept for a while, and ranges of a store are requested at the same time.
"""

from __future__ import annotations

import functools
import random
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain

import recordio
from edl_worker.core.batch import Blocks
from edl_worker.core.job import DataCacheSettings
from edl_worker.core.tasks import RecordRange
from recordio.recently_used import RecentlyUsed
from recordio.storage.range_cache import RangeCache
from recordio.storage.stores import is_uri

_KNOWN_FILES = 256
"""Files of records whose tasks a worker remembers something of."""

_SHUFFLED_BYTES = 64 << 20
"""Of the records that are shuffled together. The tasks of most jobs are smaller, and the parts of
a task come in a random order. A constant, as every run of a task has to give the same order."""

_KEPT_BYTES = 128 << 20
"""Of blocks that were read, for the next tasks."""

_KEPT_BLOCK_BYTES = 4 << 20
"""A larger block is neither read as a whole for a part of it, nor kept."""

_COUNTED_BYTES = 1 << 30
"""The part of a file whose lines are counted to name one; further on, records have numbers."""

_BYTES_PER_RECORD = 64
"""What Python needs for a record beside its content."""

_BLOCK_RECORDS = 256
"""Records that are handed on at once."""

_REQUESTS = 8
"""Ranges of a task that are requested from a store at the same time."""


def read(ranges: Sequence[RecordRange], cache: DataCacheSettings) -> Iterator[list[bytes]]:
    """Yield the records of some ranges, in order, in blocks.

    Raises:
        RecordError: a file has changed, is damaged, or cannot be read.
    """
    return chain.from_iterable(read_range(part, cache) for part in ranges)


def read_range(part: RecordRange, cache: DataCacheSettings) -> Iterator[list[bytes]]:
    """Yield the records of a range, as ``read`` does."""
    first, stop = part.block_first_record, part.block_stop_record
    is_whole = (part.start, part.stop) == (first, stop)
    if is_whole or not stop or part.end_offset - part.block_offset > _KEPT_BLOCK_BYTES:
        return _read_exactly(part, part.start, part.stop, cache)
    return _read_within_block(part, cache)


def _read_within_block(part: RecordRange, cache: DataCacheSettings) -> Iterator[list[bytes]]:
    key = (part.uri, part.version, part.block_first_record, part.block_stop_record)
    records = _recent.get(key)
    if records is None:
        try:
            whole = _read_exactly(part, part.block_first_record, part.block_stop_record, cache)
            records = list(chain.from_iterable(whole))
        except recordio.RecordError:  # of other records than these, maybe
            yield from _read_exactly(part, part.start, part.stop, cache)
            return
        _recent.add(key, records, _size_of(records))
    elif not is_uri(part.uri):
        _source(part.uri, part.format, part.version, cache).check_unchanged()
    yield records[part.start - part.block_first_record : part.stop - part.block_first_record]


def _read_exactly(
    part: RecordRange, start: int, stop: int, cache: DataCacheSettings
) -> Iterator[list[bytes]]:
    source = _source(part.uri, part.format, part.version, cache)
    return source.read_blocks(
        start,
        stop,
        hint=(part.block_first_record, part.block_offset),
        end=part.end_offset,
        exact=True,
    )


def place(part: RecordRange, cache: DataCacheSettings, record: int) -> str:
    """Return where a record of a range is, for messages."""
    if part.block_offset > _COUNTED_BYTES:
        return f"{part.uri}, record {record}"
    source = _source(part.uri, part.format, part.version, cache)
    return source.place(record, (part.block_first_record, part.block_offset))


def read_at_once(readers: Sequence[Blocks]) -> Iterator[list[bytes]]:
    """Yield what readers of ranges of a store yield, in order; some of them read ahead."""
    waiting, rest = deque[Future[list[list[bytes]]]](), iter(readers)
    pool = ThreadPoolExecutor(_REQUESTS, thread_name_prefix="ranges")
    try:
        while True:
            while len(waiting) < _REQUESTS and (reader := next(rest, None)) is not None:
                waiting.append(pool.submit(_read_all, reader))
            if not waiting:
                return
            yield from waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _read_all(reader: Blocks) -> list[list[bytes]]:
    return list(reader())


def is_stored(ranges: Sequence[RecordRange]) -> bool:
    """Return whether records are in an object store."""
    return any(is_uri(part.uri) for part in ranges)


def shuffle(blocks: Blocks, seed: int) -> Iterator[list[bytes]]:
    """Yield records in a random order that the seed decides, as many at a time as memory allows."""
    draw = random.Random(seed)
    held: list[bytes] = []
    nbytes = 0
    for block in blocks():
        held += block
        nbytes += _size_of(block)
        if nbytes >= _SHUFFLED_BYTES:
            yield from _shuffle_held(held, draw)
            held, nbytes = [], 0
    yield from _shuffle_held(held, draw)


def _shuffle_held(held: list[bytes], draw: random.Random) -> Iterator[list[bytes]]:
    draw.shuffle(held)
    for first in range(0, len(held), _BLOCK_RECORDS):
        yield held[first : first + _BLOCK_RECORDS]


def _size_of(records: Sequence[bytes]) -> int:
    """Return the memory that records take."""
    return sum(map(len, records)) + _BYTES_PER_RECORD * len(records)


_Key = tuple[str, str, int, int]


_recent: RecentlyUsed[_Key, list[bytes]] = RecentlyUsed(_KEPT_BYTES)
"""The blocks that were read last."""


@functools.lru_cache(maxsize=_KNOWN_FILES)
def _source(uri: str, format: str, version: str, cache: DataCacheSettings) -> recordio.Source:
    """Return a file of records, with what earlier tasks found out about this version of it."""
    kept = _range_cache(cache) if cache.folder else None
    return recordio.open_source(uri, format=format or None, version=version, cache=kept)


@functools.cache
def _range_cache(settings: DataCacheSettings) -> RangeCache:
    return RangeCache(settings.folder, settings.gibibytes << 30)
