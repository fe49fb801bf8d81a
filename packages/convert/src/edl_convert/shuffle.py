"""A seeded shuffle of more records than memory holds."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

import recordio

HELD_BYTES = 256 << 20
"""Records in memory at the same time, in bytes; more go through files."""

_BUCKETS = 32
"""Files that records are spread over: each buffers a chunk of about 1 MiB while it is written."""

_BYTES_PER_RECORD = 64
"""What Python needs for a record beside its content."""


def shuffle(
    records: Iterable[bytes], seed: int, scratch: Path, held_bytes: int = HELD_BYTES
) -> Iterator[bytes]:
    """Yield records in a random order: each order is equally likely, and the seed decides it.

    What does not fit into memory is spread at random over files, and each of them is shuffled in
    turn, in the same way if it does not fit either.

    Args:
        scratch: folder for the files, which are removed as soon as they are read.
        held_bytes: the most to hold in memory.
    """
    yield from _shuffle(records, random.Random(seed), scratch, held_bytes)


def _shuffle(
    records: Iterable[bytes], draw: random.Random, scratch: Path, held_bytes: int
) -> Iterator[bytes]:
    held: list[bytes] = []
    nbytes, rest = 0, iter(records)
    for record in rest:
        held.append(record)
        nbytes += len(record) + _BYTES_PER_RECORD
        if nbytes > held_bytes and len(held) > 1:
            yield from _shuffle_in_files(chain(held, rest), draw, scratch, held_bytes)
            return
    draw.shuffle(held)
    yield from held


def _shuffle_in_files(
    records: Iterator[bytes], draw: random.Random, scratch: Path, held_bytes: int
) -> Iterator[bytes]:
    with tempfile.TemporaryDirectory(
        prefix="shuffle-", dir=scratch, ignore_cleanup_errors=True
    ) as folder:
        files = [Path(folder) / f"{number}.recordio" for number in range(_BUCKETS)]
        with ExitStack() as stack:
            writers = [stack.enter_context(recordio.Writer(str(file))) for file in files]
            for record in records:
                writers[draw.randrange(_BUCKETS)].write(record)
        for file in files:
            source = recordio.open_source(str(file), format="recordio")
            yield from _shuffle(source.read(0, source.count()), draw, Path(folder), held_bytes)
            file.unlink()
