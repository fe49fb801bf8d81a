"""A lookup whose gradient is merged by id quickly.

The gradient of ``tf.gather`` adds up rows in the order in which they come, about a microsecond for
each. Sorted by the row that they go to, they are added several times as fast.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def gather_rows(rows: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    """Return the rows at these positions.

    Args:
        rows: shape (rows, dim).
        places: ``DistinctIds.places`` of ``n`` ids.

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
