"""Checks that the loss can take the labels of each minibatch.

A dry run sees the first minibatch only. A label out of range in a later one would end a step with
a text of TensorFlow, or train the model wrongly without a word.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from edl_worker.core.batch import Batch
from edl_worker.engines.tensorflow.model.description import LossFunction
from edl_worker.engines.tensorflow.model.loss_fit import find_misfit
from edl_worker.engines.tensorflow.model.loss_parts import BINARY, CATEGORICAL, SPARSE, find_parts
from edl_worker.model_file.bad_records import LabelError


@dataclass(slots=True)
class LabelCheck:
    """A check of labels that costs next to nothing while they stay in the range of earlier ones.

    Attributes:
        loss: a loss of the model file.
        model: tells which activations its outputs have.
        outputs: of the model, as specifications.
        ranges: the lowest and the highest label so far, of each output.
        are_one_hot: there is one output, whose labels are one number per class.
    """

    loss: LossFunction
    model: keras.Model
    outputs: Any
    ranges: list[tuple[float, float]]
    are_one_hot: bool = False

    def check(self, batches: Generator[Batch, None, None]) -> Generator[Batch, None, None]:
        """Yield minibatches whose labels fit; what yields them is closed in the end.

        Raises:
            LabelError: from ``next``: a label is out of the range that the loss takes.
        """
        with closing(batches):
            for batch in batches:
                self._check(batch)
                yield batch

    def _check(self, batch: Batch) -> None:
        # An example that does not count may have any label: there is a weight to say so.
        if batch.labels is None or batch.weights is not None:
            return
        leaves = tf.nest.flatten(batch.labels)
        ranges = [_widen(seen, each) for seen, each in zip(self.ranges, leaves, strict=True)]
        if ranges == self.ranges and not (self.are_one_hot and _has_empty_row(leaves[0])):
            return
        # With the range so far: numbers from 1 on, and 0 and 2, are other slips than a class more.
        known = (
            leaves
            if self.are_one_hot
            else [_add(each, *seen) for each, seen in zip(leaves, self.ranges, strict=True)]
        )
        labels = tf.nest.pack_sequence_as(batch.labels, known)
        error, _ = find_misfit(self.loss, self.model, labels, self.outputs)
        if error is not None:
            raise LabelError(error.code, error.what, where=error.where, remedy=error.remedy)
        self.ranges = ranges


def make_label_check(
    loss: LossFunction, model: keras.Model, labels: Any, outputs: Any
) -> LabelCheck | None:
    """Return the check of the labels that follow; None if the loss takes any number.

    Args:
        labels: of the first minibatch, which fit.
        outputs: of the model, as specifications.
    """
    parts = list(find_parts(loss.for_compile.get("loss"), model, labels, outputs))
    are_one_hot = len(parts) == 1 and parts[0].loss in CATEGORICAL
    are_one_hot = are_one_hot and parts[0].are_one_hot and parts[0].are_whole
    if not any(part.loss in (SPARSE, *BINARY) for part in parts) and not are_one_hot:
        return None
    none_yet = (float("inf"), float("-inf"))
    ranges = [_widen(none_yet, each) for each in tf.nest.flatten(labels)]
    return LabelCheck(loss, model, outputs, ranges, are_one_hot)


def _widen(seen: tuple[float, float], labels: Any) -> tuple[float, float]:
    if not isinstance(labels, tf.Tensor) or labels.dtype == tf.string:
        return seen
    values = labels.numpy()
    if values.size == 0:
        return seen
    return min(seen[0], float(values.min())), max(seen[1], float(values.max()))


def _has_empty_row(labels: Any) -> bool:
    values = labels.numpy()
    return values.ndim == 2 and not values.any(-1).all()


def _add(labels: Any, *others: float) -> Any:
    """Return labels with those of more examples, each of which has one number for all of them."""
    if not isinstance(labels, tf.Tensor) or labels.dtype == tf.string:
        return labels
    rows = [tf.fill(tf.shape(labels[:1]), tf.cast(other, labels.dtype)) for other in others]
    return tf.concat([labels, *rows], 0)
