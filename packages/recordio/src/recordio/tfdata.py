"""Records as a ``tf.data.Dataset`` of strings; the only module that needs TensorFlow.

Blocks of about a mebibyte cross from Python to TensorFlow at a time, and a thread of TensorFlow's
reads ahead while the last ones are used. The op underneath is the one that
``Dataset.from_generator`` is made of, used directly: its functions are built in a few
milliseconds, and an iteration starts in a third of the time.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any

from recordio.source import Hint, Source, open_source

BLOCK_BYTES = 1 << 20
"""Of records that go to TensorFlow at once; less costs calls, more leaves the caches."""

_MAX_BLOCK_RECORDS = 1 << 16

Range = tuple[str | Source, int, int] | tuple[str | Source, int, int, Hint | None]
"""A file or an open source, its first record, the record after its last, and where its block is."""


class Failure:
    """Keeps the error that ended a reading inside ``tf.data``, which would only say so.

    Attributes:
        error: what the reader raised; None as long as all is well.
    """

    def __init__(self) -> None:
        self.error: Exception | None = None

    def reraise(self) -> None:
        """Raise the reader's own error, if there was one."""
        if self.error is not None:
            raise self.error

    def iterate(self, dataset: Iterable[Any]) -> Iterator[Any]:
        """The elements of a dataset that was made from the records.

        Raises:
            DamagedFile: or whatever else the reader raised, in place of TensorFlow's error, and
                also where the dataset swallowed it (``ignore_errors``).
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


def dataset(ranges: Iterable[str | Source | Range], *, failure: Failure | None = None) -> Any:
    """A dataset of scalar strings: the records of files or ranges of files, one after another.

    Args:
        ranges: paths, URIs or sources (the whole of each), or ranges of them. A range that its
            file does not hold to the end is an error.
        failure: as for ``from_blocks``.
    """
    parts = list(ranges)

    def blocks() -> Iterator[list[bytes]]:
        for part in parts:
            yield from _blocks_of(part)

    return from_blocks(blocks, failure=failure)


def _blocks_of(part: str | Source | Range) -> Iterator[list[bytes]]:
    if not isinstance(part, tuple):
        source = open_source(part) if isinstance(part, str) else part
        return source.read_blocks(0, source.count(), exact=True)
    place, start, stop, hint = (*part, None)[:4]
    source = open_source(place) if isinstance(place, str) else place
    return source.read_blocks(start, stop, hint=hint, exact=True)


def from_blocks(
    blocks: Callable[[], Iterator[list[bytes]]],
    *,
    failure: Failure | None = None,
    ahead: int = 2,
) -> Any:
    """A dataset of scalar strings: the records of all blocks, in order.

    Args:
        blocks: called for each iteration over the dataset, from a thread of TensorFlow's; gives
            lists of records. So one dataset, with what is mapped and batched on it, can serve
            one range after another and is traced once.
        failure: keeps an exception of ``blocks``. Iterate with its ``iterate``, or call
            ``reraise`` when an iteration ends in an error of TensorFlow's.
        ahead: blocks of about a mebibyte that are read before they are asked for.
    """
    import numpy as np
    import tensorflow as tf

    running: dict[int, Any] = {}
    numbers = itertools.count()
    lock = threading.Lock()

    def begin() -> Any:
        if failure is not None:
            failure.error = None
        with lock:
            number = next(numbers)
            running[number] = None
        return np.int64(number)

    def step(number: Any) -> Any:
        # StopIteration tells TensorFlow that this is the end.
        try:
            current = running[int(number)]
            if current is None:
                current = running[int(number)] = _evened(blocks())
            block = next(current)
        except StopIteration:
            raise
        except Exception as error:
            if failure is not None:
                failure.error = error
            raise
        # Not np.array(block): that would look into each record for a sequence.
        array = np.empty(len(block), dtype=object)
        array[:] = block
        return array

    def end(number: Any) -> Any:
        current = running.pop(int(number), None)
        if current is not None:
            current.close()
        return np.int64(0)

    number = tf.TensorSpec([], tf.int64)

    def function(python: Callable[..., Any], out: Any, *signature: Any) -> Any:
        # No autograph: it would parse the source of this module for each dataset.
        wrapped = tf.function(
            lambda *inputs: tf.numpy_function(python, list(inputs), out),
            input_signature=signature,
            autograph=False,
        )
        return wrapped.get_concrete_function()

    functions = (
        function(begin, tf.int64),
        function(step, tf.string, number),
        function(end, tf.int64, number),
    )
    variant = tf.raw_ops.GeneratorDataset(
        init_func_other_args=[],
        next_func_other_args=[],
        finalize_func_other_args=[],
        init_func=functions[0],
        next_func=functions[1],
        finalize_func=functions[2],
        output_types=[tf.string],
        output_shapes=[[None]],
    )
    blocked = tf.data.experimental.from_variant(variant, tf.TensorSpec([None], tf.string))
    # TensorFlow holds Python functions weakly; datasets hold what they were made from.
    blocked._recordio_functions = functions
    return blocked.prefetch(ahead).unbatch() if ahead else blocked.unbatch()


def _evened(blocks: Iterator[list[bytes]]) -> Iterator[list[bytes]]:
    """The same records in blocks of about a mebibyte."""
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
            # The records before the damage are whole.
            if waiting:
                yield waiting
            raise
        if waiting:
            yield waiting


def _parts(block: list[bytes], nbytes: int) -> Iterator[list[bytes]]:
    """A long block cut into several of about a mebibyte."""
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
