"""A lookup whose gradient is merged by id quickly.

The gradient of ``tf.gather`` adds up rows in the order in which they come, about a microsecond for
each. Sorted by the row that they go to, they are added several times as fast, and numpy sorts the
places of a minibatch in less than a tenth of the time that this saves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf


def sort_positions(at: npt.NDArray[np.int32], rows: int) -> npt.NDArray[np.int32]:
    """Return positions as ``gather_rows`` takes them: unsorted, their sort order, sorted.

    Args:
        at: for each id of a lookup, which row it has; shape (n,).
        rows: how many rows there are.

    Returns:
        int32 of shape (3 n,).
    """
    # Numbers of 16 bits are sorted by radix, seven times as fast.
    key = at.astype(np.uint16) if rows <= 1 << 16 else at
    order = np.argsort(key, kind="stable")
    return np.concatenate([at, order, at[order]], dtype=np.int32, casting="same_kind")


def gather_rows(rows: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    """Return the rows at these positions.

    Args:
        rows: shape (rows, dim).
        places: what ``sort_positions`` gave for ``n`` ids.

    Returns:
        Shape (n, dim). Gradients go to ``rows``, merged.
    """
    at, order, ascending = tf.split(places, 3)

    @tf.custom_gradient  # type: ignore[untyped-decorator]  # TensorFlow has no types
    def gather(rows: tf.Tensor) -> tuple[tf.Tensor, Any]:
        def merge(gradient: tf.Tensor) -> tf.Tensor:
            return tf.raw_ops.SparseSegmentSumWithNumSegments(
                data=gradient,
                indices=order,
                segment_ids=ascending,
                num_segments=tf.shape(rows)[0],
            )

        return tf.gather(rows, at), merge

    found: tf.Tensor = gather(rows)
    return found
