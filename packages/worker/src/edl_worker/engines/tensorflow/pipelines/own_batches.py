"""Finds datasets that yield minibatches where they should yield records.

The model would take each minibatch for one example, and many models do not notice.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from edl_worker.engines.tensorflow.internals import dataset_inputs, dataset_kind, has_operation

_BATCHES = frozenset(
    ("Batch", "ParallelBatch", "PaddedBatch", "MapAndBatch", "DenseToRaggedBatch", "Rebatch")
)
# Steps after which the elements are no longer those of a step before.
_UNBATCHING_KINDS = frozenset(("Unbatch", "FlatMap", "Interleave", "ParallelInterleave"))


def yields_batches(dataset: tf.data.Dataset) -> bool:
    """Whether a dataset batches, and nothing takes the minibatches apart again.

    A dataset may make one example of several records: then at least one part of an example, such
    as its label, does not begin with the dimension of the minibatch.
    """
    waiting = [dataset]
    while waiting:
        step = waiting.pop()
        kind = dataset_kind(step)
        if kind in _UNBATCHING_KINDS:
            continue
        # bucket_by_sequence_length() batches in the function of a window.
        if kind in _BATCHES or (kind == "GroupByWindow" and has_operation(step, "BatchDataset")):
            known = [shape[0] for shape in _shapes(step) if shape.rank]
            size = known[0] if known else None
            if all(_begins_with(size, shape) for shape in _shapes(dataset)):
                return True
        waiting.extend(dataset_inputs(step))
    return False


def _shapes(dataset: tf.data.Dataset) -> list[tf.TensorShape]:
    """Return the shapes of the parts of an element, as far as they have one."""
    parts: list[Any] = tf.nest.flatten(dataset.element_spec)
    return [part.shape for part in parts if hasattr(part, "shape")]


def _begins_with(size: int | None, shape: tf.TensorShape) -> bool:
    if shape.rank is None:
        return True  # of tf.py_function, and possibly a batch
    return bool(shape.rank > 0 and shape[0] == size)
