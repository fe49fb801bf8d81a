"""Records as a ``tf.data.Dataset`` of strings; the only module that needs TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


class Failure:
    """Keeps the error that ended a reading inside ``tf.data``, which would only say so."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def reraise(self) -> None:
        """Raise the reader's own error, if there was one."""
        if self.error is not None:
            raise self.error


def from_blocks(
    blocks: Callable[[], Iterator[list[bytes]]], *, failure: Failure | None = None
) -> Any:
    """A dataset of scalar strings: the records of all blocks, in order.

    Args:
        blocks: called for each iteration; gives lists of records.
        failure: keeps an exception of ``blocks``; call ``reraise`` on it when an iteration ends
            in an error of TensorFlow's.
    """
    import numpy as np
    import tensorflow as tf

    def generate() -> Iterator[Any]:
        try:
            for block in blocks():
                yield np.array(block, dtype=object)
        except Exception as error:
            if failure is not None:
                failure.error = error
            raise

    blocked = tf.data.Dataset.from_generator(
        generate, output_signature=tf.TensorSpec([None], tf.string)
    )
    return blocked.prefetch(2).unbatch()
