"""Records as a ``tf.data.Dataset`` of strings; the only module that needs TensorFlow.

Blocks of about a mebibyte cross from Python to TensorFlow at a time, and a thread of TensorFlow's
reads ahead while the last ones are used. The underlying op is that of ``Dataset.from_generator``,
used directly: no function is traced for a dataset, an iteration starts in a third of the time, and
nothing stays in memory after a dataset is freed.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from recordio import allocator
from recordio.formats.detection import open_source
from recordio.source import Hint, Source

BLOCK_BYTES = 1 << 20
"""The size of a block: smaller ones cost more calls, larger ones exceed the processor's caches."""

_MAX_BLOCK_RECORDS = 1 << 16

Range = tuple[str | Source, int, int] | tuple[str | Source, int, int, Hint | None]
"""A file or an open source, the first record, the record after the last, and the first block."""


class ErrorRelay:
    """Keeps the error that ended reading inside ``tf.data``, which hides it.

    Attributes:
        error: the reader's error; None if there was none.
    """

    def __init__(self) -> None:
        self.error: Exception | None = None

    def reraise(self) -> None:
        """Raise the reader's own error, if there was one."""
        if self.error is not None:
            raise self.error

    def iterate(self, dataset: Iterable[Any]) -> Iterator[Any]:
        """Yield the elements of a dataset that was made from the records.

        Raises:
            DamagedFile: or any other error of the reader, instead of TensorFlow's error, and even
                if the dataset ignored it (``ignore_errors``).
        """
        iterator = iter(dataset)
        while True:
            try:
                element = next(iterator)
            except StopIteration:
                self.reraise()
                return
            except Exception as error:
                if self.error is not None:
                    raise self.error from error
                raise
            yield element


def dataset(ranges: Iterable[str | Source | Range], *, relay: ErrorRelay | None = None) -> Any:
    """Make a dataset of the records of files or ranges of files, as scalar strings.

    Args:
        ranges: paths, URIs or sources (the whole of each), or ranges of them. A range beyond the
            end of its file is an error.
        relay: keeps an error of a reader; see ``from_blocks``.
    """
    parts = list(ranges)

    def blocks() -> Iterator[list[bytes]]:
        for part in parts:
            yield from _blocks_of(part)

    return from_blocks(blocks, relay=relay)


def _blocks_of(part: str | Source | Range) -> Iterator[list[bytes]]:
    if not isinstance(part, tuple):
        source = open_source(part) if isinstance(part, str) else part
        return source.read_blocks(0, source.count(), exact=True)
    origin, start, stop, hint = (*part, None)[:4]
    source = open_source(origin) if isinstance(origin, str) else origin
    return source.read_blocks(start, stop, hint=hint, exact=True)


def from_blocks(
    blocks: Callable[[], Iterator[list[bytes]]],
    *,
    relay: ErrorRelay | None = None,
    ahead: int = 2,
) -> Any:
    """Make a dataset of the records of all blocks in order, as scalar strings.

    Args:
        blocks: called for each iteration over the dataset, in a thread of TensorFlow's; yields
            lists of records. So one dataset, with the maps and batches on top of it, can serve one
            range after another, and is traced only once.
        relay: keeps an exception of ``blocks``. Iterate with its ``iterate``, or call
            ``reraise`` when an iteration ends in an error of TensorFlow's.
        ahead: the number of blocks, of about a mebibyte each, that are read ahead.
    """
    import tensorflow as tf

    feed = next(_numbers)
    _feeds[feed] = _Feed(blocks, relay)
    begin, step, end = _functions()
    variant = tf.raw_ops.GeneratorDataset(
        init_func_other_args=[tf.constant(feed, tf.int64)],
        next_func_other_args=[],
        finalize_func_other_args=[],
        init_func=begin,
        next_func=step,
        finalize_func=end,
        output_types=[tf.string],
        output_shapes=[[None]],
    )
    allocator.keep_freed_memory()
    # A dataset keeps its parts alive: this runs when no iteration can follow.
    weakref.finalize(variant, _feeds.pop, feed, None)
    blocked = tf.data.experimental.from_variant(variant, tf.TensorSpec([None], tf.string))
    return blocked.prefetch(ahead).unbatch() if ahead else blocked.unbatch()


@dataclass(frozen=True, slots=True)
class _Feed:
    """The source of a dataset's blocks."""

    blocks: Callable[[], Iterator[list[bytes]]]
    relay: ErrorRelay | None

    def run(self) -> Iterator[list[bytes]]:
        return _rebatch(self.blocks())


# TensorFlow never frees a Python function that it was given. So it gets only these three, once, and
# datasets and their iterations are passed to them as numbers.
_numbers = itertools.count()
_feeds: dict[int, _Feed] = {}
_iterations: dict[int, _Iteration] = {}


class _Iteration:
    """One pass over a feed."""

    def __init__(self, feed: _Feed) -> None:
        self._feed = feed
        self._blocks: Any = None

    def next(self) -> list[bytes]:
        try:
            if self._blocks is None:
                self._blocks = self._feed.run()
            block: list[bytes] = next(self._blocks)
        except StopIteration:
            raise  # tells TensorFlow that this is the end
        except Exception as error:
            if self._feed.relay is not None:
                self._feed.relay.error = error
            raise
        return block

    def close(self) -> None:
        if self._blocks is not None:
            self._blocks.close()


def _begin(feed: Any) -> Any:
    found = _feeds.get(int(feed))
    if found is None:
        raise RuntimeError(
            "the dataset of these records no longer exists; keep a reference to what "
            "from_blocks returned"
        )
    if found.relay is not None:
        found.relay.error = None
    iteration = next(_numbers)
    _iterations[iteration] = _Iteration(found)
    return np.int64(iteration)


def _step(iteration: Any) -> Any:
    block = _iterations[int(iteration)].next()
    # np.array(block) would examine each record as a possible sequence.
    array = np.empty(len(block), dtype=object)
    array[:] = block
    return array


def _end(iteration: Any) -> Any:
    _iterations.pop(int(iteration)).close()
    return np.int64(0)


@functools.cache
def _functions() -> tuple[Any, Any, Any]:
    """Return the three functions as TensorFlow calls them, with an int64 scalar each way."""
    import tensorflow as tf

    number = tf.TensorSpec([], tf.int64)

    def trace(python: Callable[[Any], Any], out: Any) -> Any:
        # No autograph: it would parse the source of this module. A function of one device is
        # instantiated, once per iteration, without placing and optimizing its graph.
        function = tf.function(
            lambda given: tf.numpy_function(python, [given], out),
            input_signature=[number],
            autograph=False,
            experimental_attributes={"experimental_ints_on_device": True},
        )
        return function.get_concrete_function()

    with tf.init_scope():
        return trace(_begin, tf.int64), trace(_step, tf.string), trace(_end, tf.int64)


def _rebatch(blocks: Iterator[list[bytes]]) -> Iterator[list[bytes]]:
    """Regroup records into blocks of about a mebibyte."""
    waiting: list[bytes] = []
    nbytes = 0
    with closing(_Closing(blocks)):
        try:
            for block in blocks:
                size = sum(map(len, block))
                if not waiting and BLOCK_BYTES <= 2 * size <= 4 * BLOCK_BYTES:
                    yield block  # as most files are written
                    continue
                for part in _parts(block, size):
                    waiting += part
                    nbytes += sum(map(len, part))
                    if nbytes >= BLOCK_BYTES or len(waiting) >= _MAX_BLOCK_RECORDS:
                        yield waiting
                        waiting, nbytes = [], 0
        except Exception:
            # The records before the damage are good.
            if waiting:
                yield waiting
            raise
        if waiting:
            yield waiting


def _parts(block: list[bytes], nbytes: int) -> Iterator[list[bytes]]:
    """Cut a long block into several of about a mebibyte."""
    pieces = max(nbytes // BLOCK_BYTES, len(block) // _MAX_BLOCK_RECORDS)
    if pieces < 2:
        yield block
        return
    step = -(-len(block) // pieces)
    for at in range(0, len(block), step):
        yield block[at : at + step]


class _Closing:
    """Closes an iterator that can be closed: files should not wait for the garbage collector."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self._iterator = iterator

    def close(self) -> None:
        close = getattr(self._iterator, "close", None)
        if close is not None:
            close()
