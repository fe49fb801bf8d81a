"""Finds datasets that yield batches of examples, and makes minibatches of a job of them.

Parsing many records at once costs half of parsing each. How many are in a batch is the model
file's affair; how many are in a minibatch is the job's, so batches are cut and joined.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from edl_worker.engines.tensorflow.internals import (
    dataset_inputs,
    dataset_kind,
    drops_remainder,
    has_operation,
)

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


def batch_problem(dataset: tf.data.Dataset) -> tuple[str, str] | None:
    """Return why minibatches cannot be made of a dataset's batches, and a remedy; None: they can.

    The problem is the predicate of a sentence about the function that returned the dataset.
    """
    waiting = [dataset]
    while waiting:
        step = waiting.pop()
        if drops_remainder(step):
            return (
                "batches with drop_remainder=True, so the last records of each task would never "
                "be trained",
                "Leave drop_remainder out.",
            )
        waiting.extend(dataset_inputs(step))
    for spec in tf.nest.flatten(dataset.element_spec):
        if isinstance(spec, tf.RaggedTensorSpec):
            return (
                "batches rows of different lengths (ragged tensors)",
                "Give them one length: x.to_tensor(shape=(None, 100)), or "
                "output_sequence_length=100 in a TextVectorization.",
            )
        if not isinstance(spec, tf.TensorSpec) or spec.shape.rank is None or None in spec.shape[1:]:
            return (
                "batches examples of no fixed shape, so batches cannot be joined to minibatches",
                "Give examples one shape, such as padded_batch(..., padded_shapes=...) with a "
                "fixed length; or leave out the batches, and edl makes them.",
            )
    return None


def minibatches(dataset: tf.data.Dataset, size: int) -> tf.data.Dataset:
    """Return minibatches of ``size`` examples, whether the dataset has examples or batches."""
    return dataset.rebatch(size) if yields_batches(dataset) else dataset.batch(size)


def _shapes(dataset: tf.data.Dataset) -> list[tf.TensorShape]:
    """Return the shapes of the parts of an element, as far as they have one."""
    parts: list[Any] = tf.nest.flatten(dataset.element_spec)
    return [part.shape for part in parts if hasattr(part, "shape")]


def _begins_with(size: int | None, shape: tf.TensorShape) -> bool:
    if shape.rank is None:
        return True  # of tf.py_function, and possibly a batch
    return bool(shape.rank > 0 and shape[0] == size)
